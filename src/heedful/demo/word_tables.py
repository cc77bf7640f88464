"""The words of the demo grammar, as plain tables; `lexicon` reads them, nothing else does.

Columns are divided by `;` and `#` starts a comment. Regular forms are left out and derived: a noun gives an English
plural and a verb gives forms only where the rule would be wrong.
"""

# English singular [plural] ; German article, singular, plural [weak] ; kinds [mass | single] [feminine=...]
NOUNS = """
man men              ; der Mann Männer                ; human adult male
woman women          ; die Frau Frauen                ; human adult female
child children       ; das Kind Kinder                ; human ours
boy                  ; der Junge Jungen weak          ; human male
girl                 ; das Mädchen Mädchen            ; human female
baby                 ; das Baby Babys                 ; baby
friend               ; der Freund Freunde             ; human adult ours related male
neighbour            ; der Nachbar Nachbarn weak      ; human adult ours related male
colleague            ; der Kollege Kollegen weak      ; human adult ours related male
guest                ; der Gast Gäste                 ; human adult ours male
customer             ; der Kunde Kunden weak          ; human adult male
tourist              ; der Tourist Touristen weak     ; human adult male
teacher              ; der Lehrer Lehrer              ; human adult ours male job feminine=Lehrerin
doctor               ; der Arzt Ärzte                 ; human adult ours male job feminine=Ärztin
student              ; der Student Studenten weak     ; human adult male job feminine=Studentin
cook                 ; der Koch Köche                 ; human adult male job feminine=Köchin
baker                ; der Bäcker Bäcker              ; human adult male job feminine=Bäckerin
farmer               ; der Bauer Bauern weak          ; human adult male job feminine=Bäuerin
artist               ; der Künstler Künstler          ; human adult male job feminine=Künstlerin
singer               ; der Sänger Sänger              ; human adult male job feminine=Sängerin
gardener             ; der Gärtner Gärtner            ; human adult male job feminine=Gärtnerin
waiter               ; der Kellner Kellner            ; human adult male
judge                ; der Richter Richter            ; human adult male job feminine=Richterin
pilot                ; der Pilot Piloten weak         ; human adult male job feminine=Pilotin
mother               ; die Mutter Mütter              ; kin female single
father               ; der Vater Väter                ; kin male single
brother              ; der Bruder Brüder              ; kin male
sister               ; die Schwester Schwestern       ; kin female
son                  ; der Sohn Söhne                 ; kin male
daughter             ; die Tochter Töchter            ; kin female
uncle                ; der Onkel Onkel                ; kin male
aunt                 ; die Tante Tanten               ; kin female
grandmother          ; die Großmutter Großmütter      ; kin female single
grandfather          ; der Großvater Großväter        ; kin male single

dog                  ; der Hund Hunde                 ; animal pet barks
cat                  ; die Katze Katzen               ; animal pet
bird                 ; der Vogel Vögel                ; animal
horse                ; das Pferd Pferde               ; animal farm
cow                  ; die Kuh Kühe                   ; animal farm
pig                  ; das Schwein Schweine           ; animal farm
mouse mice           ; die Maus Mäuse                 ; animal
rabbit               ; das Kaninchen Kaninchen        ; animal pet
donkey               ; der Esel Esel                  ; animal farm
goat                 ; die Ziege Ziegen               ; animal farm
duck                 ; die Ente Enten                 ; animal
bear                 ; der Bär Bären weak             ; animal wild
lion                 ; der Löwe Löwen weak            ; animal wild
elephant             ; der Elefant Elefanten weak     ; animal wild
monkey               ; der Affe Affen weak            ; animal wild

apple                ; der Apfel Äpfel                ; food fruit
pear                 ; die Birne Birnen               ; food fruit
banana               ; die Banane Bananen             ; food fruit
strawberry           ; die Erdbeere Erdbeeren         ; food fruit several
tomato tomatoes      ; die Tomate Tomaten             ; food fruit
potato potatoes      ; die Kartoffel Kartoffeln       ; food cooked several
egg                  ; das Ei Eier                    ; food cooked
sausage              ; die Wurst Würste               ; food
biscuit              ; der Keks Kekse                 ; food baked
cake                 ; der Kuchen Kuchen              ; food baked
roll                 ; das Brötchen Brötchen          ; food baked
soup                 ; die Suppe Suppen               ; food cooked dish
salad                ; der Salat Salate               ; food dish
bread                ; das Brot Brote                 ; food baked mass
cheese               ; der Käse Käse                  ; food mass
meat                 ; das Fleisch Fleische           ; food cooked mass
rice                 ; der Reis Reise                 ; food cooked mass
water                ; das Wasser Wasser              ; drink cool mass
milk                 ; die Milch Milch                ; drink cool mass
juice                ; der Saft Säfte                 ; drink cool mass
lemonade             ; die Limonade Limonaden         ; drink cool mass
beer                 ; das Bier Biere                 ; drink cool mass
wine                 ; der Wein Weine                 ; drink mass
coffee               ; der Kaffee Kaffees             ; drink brew mass
tea                  ; der Tee Tees                   ; drink brew mass

book                 ; das Buch Bücher                ; text thing gift
newspaper            ; die Zeitung Zeitungen          ; text thing
letter               ; der Brief Briefe               ; text thing written
postcard             ; die Postkarte Postkarten       ; text thing written
novel                ; der Roman Romane               ; text written gift
poem                 ; das Gedicht Gedichte           ; text written
story                ; die Geschichte Geschichten     ; text written
question             ; die Frage Fragen               ; issue
problem              ; das Problem Probleme           ; issue
answer               ; die Antwort Antworten          ; issue
song                 ; das Lied Lieder                ; song heard
door                 ; die Tür Türen                  ; opens
window               ; das Fenster Fenster            ; opens
box boxes            ; die Kiste Kisten               ; opens thing inside1
suitcase             ; der Koffer Koffer              ; opens thing inside1
bag                  ; die Tasche Taschen             ; opens thing inside1 gift
cupboard             ; der Schrank Schränke           ; opens furniture inside1
lamp                 ; die Lampe Lampen               ; device furniture gift
computer             ; der Computer Computer          ; device gift
radio                ; das Radio Radios               ; device
television           ; der Fernseher Fernseher        ; device
machine              ; die Maschine Maschinen         ; device
camera               ; die Kamera Kameras             ; thing gift repairable
phone                ; das Telefon Telefone           ; repairable rings
car                  ; das Auto Autos                 ; vehicle own
bicycle              ; das Fahrrad Fahrräder          ; vehicle own gift
boat                 ; das Boot Boote                 ; vehicle own
bus buses            ; der Bus Busse                  ; vehicle public
train                ; der Zug Züge                   ; vehicle public
ship                 ; das Schiff Schiffe             ; vehicle public
taxi                 ; das Taxi Taxis                 ; vehicle awaited
shirt                ; das Hemd Hemden                ; clothing gift
coat                 ; der Mantel Mäntel              ; clothing gift
hat                  ; der Hut Hüte                   ; clothing gift
dress dresses        ; das Kleid Kleider              ; clothing gift
jacket               ; die Jacke Jacken               ; clothing gift
scarf scarves        ; der Schal Schals               ; clothing gift
shoe                 ; der Schuh Schuhe               ; clothing several
table                ; der Tisch Tische               ; furniture top
chair                ; der Stuhl Stühle               ; furniture seat
sofa                 ; das Sofa Sofas                 ; furniture seat
bed                  ; das Bett Betten                ; furniture top
shelf shelves        ; das Regal Regale               ; furniture top
key                  ; der Schlüssel Schlüssel        ; thing
ball                 ; der Ball Bälle                 ; thing gift
cup                  ; die Tasse Tassen               ; thing dishes
plate                ; der Teller Teller              ; thing dishes
glass glasses        ; das Glas Gläser                ; thing dishes
spoon                ; der Löffel Löffel              ; thing dishes
knife knives         ; das Messer Messer              ; thing dishes
umbrella             ; der Regenschirm Regenschirme   ; thing
watch watches        ; die Uhr Uhren                  ; thing gift repairable
pencil               ; der Bleistift Bleistifte       ; thing
wall                 ; die Wand Wände                 ; inner
picture              ; das Bild Bilder                ; thing gift art
photo                ; das Foto Fotos                 ; thing gift
ring                 ; der Ring Ringe                 ; thing gift
doll                 ; die Puppe Puppen               ; thing gift
ticket               ; die Fahrkarte Fahrkarten       ; thing
flower               ; die Blume Blumen               ; plant gift
rose                 ; die Rose Rosen                 ; plant gift
tree                 ; der Baum Bäume                 ; plant
euro                 ; der Euro Euro                  ; currency
money                ; das Geld Gelder                ; money mass
time                 ; die Zeit Zeiten                ; leisure mass
language             ; die Sprache Sprachen           ; learnt
word                 ; das Wort Wörter                ; learnt issue
music                ; die Musik Musiken              ; heard mass
concert              ; das Konzert Konzerte           ; event
film                 ; der Film Filme                 ; event
party                ; die Party Partys               ; event
course               ; der Kurs Kurse                 ; event

house                ; das Haus Häuser                ; building
bridge               ; die Brücke Brücken             ; building
church churches      ; die Kirche Kirchen             ; building inside
museum               ; das Museum Museen              ; building inside sight
hotel                ; das Hotel Hotels               ; building inside
hospital             ; das Krankenhaus Krankenhäuser  ; building inside work
school               ; die Schule Schulen             ; building inside work
restaurant           ; das Restaurant Restaurants     ; building inside work
cinema               ; das Kino Kinos                 ; building inside
theatre              ; das Theater Theater            ; building inside work
library              ; die Bibliothek Bibliotheken    ; building inside work
supermarket          ; der Supermarkt Supermärkte     ; building inside work
office               ; das Büro Büros                 ; room inside work
kitchen              ; die Küche Küchen               ; room inside work
room                 ; das Zimmer Zimmer              ; room inside
garden               ; der Garten Gärten              ; outdoors inside work
park                 ; der Park Parks                 ; outdoors inside
forest               ; der Wald Wälder                ; outdoors inside
city                 ; die Stadt Städte               ; outdoors inside town
village              ; das Dorf Dörfer                ; outdoors inside town
beach beaches        ; der Strand Strände             ; outdoors shore
lake                 ; der See Seen                   ; outdoors shore
station              ; der Bahnhof Bahnhöfe           ; building stop
airport              ; der Flughafen Flughäfen        ; building stop
market               ; der Markt Märkte               ; outdoors market
"""

# English base [past participle] with +particle, (preposition) ; German prefix|infinitive [er-form participle] with
# +sein, +sich, (preposition) ; kinds of subject ; case and kinds of object, ? = may be missing ;
# place (! = always), manner, recipient
VERBS = """
sleep slept slept           ; schlafen schläft geschlafen        ; person animal baby ;  ; well at
laugh                       ; lachen                             ; person baby ;                            ; loudly
cry                         ; weinen                             ; person baby ;                            ; loudly
work                        ; arbeiten                           ; person ;                            ; alone with at
dance                       ; tanzen                             ; person ;  ; well with alone at
swim swam swum              ; schwimmen schwimmt geschwommen +sein; person ;  ; shore well with alone
play                        ; spielen                            ; person animal baby ;  ; quietly with at
smile                       ; lächeln                            ; person baby ;                            ;
shop                        ; ein|kaufen                         ; person ;                            ;
watch =TV                   ; fern|sehen sieht gesehen           ; person ;                            ;
bark                        ; bellen bellt gebellt               ; barks  ;                            ; loudly
sit sat sat                 ; sitzen sitzt gesessen              ; person ;                            ; seat!
stand stood stood           ; stehen steht gestanden             ; furniture dishes ;  ; stand!
lie lay lain                ; liegen liegt gelegen               ; thing  ;                            ; spot!
hang hung hung              ; hängen hängt gehangen              ; art    ;                            ; wall!
live                        ; wohnen                             ; person ;                            ; home! alone
stay                        ; bleiben bleibt geblieben +sein     ; person ;                            ; at!
arrive                      ; an|kommen kommt gekommen +sein     ; person public ;                            ; stop
leave left left             ; ab|fahren fährt gefahren +sein     ; public ;                            ;
begin began begun           ; an|fangen fängt gefangen           ; event  ;                            ;
end                         ; enden                              ; event  ;                            ;
ring rang rung              ; klingeln                           ; rings  ;                            ; loudly
get got got =up             ; auf|stehen steht gestanden +sein   ; person ;                            ;
wake woke woken =up         ; auf|wachen +sein                   ; person baby ;                            ;
fall fell fallen =asleep    ; ein|schlafen schläft geschlafen +sein; person animal baby ;                            ;
come came come =back        ; zurück|kommen kommt gekommen +sein ; person ;                            ;
rest                        ; aus|ruhen +sich                    ; person ;                            ;
hurry                       ; beeilen +sich                      ; person ;                            ;
go went gone                ; gehen geht gegangen +sein          ; person ;                            ; to!
come came come              ; kommen kommt gekommen +sein        ; person ;                            ; home-to!
run ran run                 ; laufen läuft gelaufen +sein        ; person animal ;  ; to! quickly
travel                      ; reisen +sein                       ; person ;                            ; far-to! alone
fly flew flown              ; fliegen fliegt geflogen +sein      ; person ;                            ; far-to!
drive drove driven          ; fahren fährt gefahren +sein        ; person ;                            ; city-to! slowly

eat ate eaten               ; essen isst gegessen                ; person ; food                       ; at
drink drank drunk           ; trinken trinkt getrunken           ; person ; drink                      ;
cook                        ; kochen                             ; person ; cooked ?                   ;
bake                        ; backen backt gebacken              ; person ; baked                      ;
order                       ; bestellen                          ; person ; food drink                 ;
buy bought bought           ; kaufen                             ; person ; gift food drink own furniture shoe ; gives?
sell sold sold              ; verkaufen                          ; person ; gift own furniture clothing food ;
read read read              ; lesen liest gelesen                ; person ; text                       ; slowly at
write wrote written         ; schreiben schreibt geschrieben     ; person ; written                    ; gives?
sing sang sung              ; singen singt gesungen              ; person ; song ? ; well loudly with at
paint                       ; malen                              ; person ; art                        ;
hear heard heard            ; hören                              ; person ; person animal heard        ;
see saw seen                ; sehen sieht gesehen                ; person ; person animal thing building vehicle film ;
find found found            ; finden findet gefunden             ; person ; thing money                ;
look =for                   ; suchen                             ; person ; thing person pet work      ;
lose lost lost              ; verlieren verliert verloren        ; person ; thing money                ;
forget forgot forgotten     ; vergessen vergisst vergessen       ; person ; thing learnt written       ;
hide hid hidden             ; verstecken                         ; person ; thing money                ;
need                        ; brauchen                           ; person ; thing money time own clothing furniture ;
have had had                ; haben hat gehabt                   ; person ; thing own pet question problem time ;
love                        ; lieben                             ; person ; person pet town language heard ;
like                        ; mögen mag gemocht                  ; person ; person animal food drink town clothing ;
know knew known             ; kennen kennt gekannt               ; person ; person town novel poem story song building ;
visit                       ; besuchen                           ; person ; person sight town          ;
meet met met                ; treffen trifft getroffen           ; person ; person                     ;
greet                       ; begrüßen                           ; person ; person                     ;
ask                         ; fragen                             ; person ; person                     ;
hug                         ; umarmen                            ; person ; person pet                 ;
invite                      ; ein|laden lädt geladen             ; person ; person                     ;
call                        ; an|rufen ruft gerufen              ; person ; person                     ;
pick +up                    ; ab|holen                           ; person ; person                     ;
understand understood understood; verstehen versteht verstanden      ; person ; person issue language text ;
learn                       ; lernen                             ; person ; learnt song                ;
carry                       ; tragen trägt getragen              ; person ; box suitcase bag chair table ;
take took taken             ; nehmen nimmt genommen              ; person ; thing                      ;
use                         ; benutzen                           ; person ; device own dishes          ;
wash                        ; waschen wäscht gewaschen           ; person ; clothing dishes own fruit  ;
clean                       ; putzen                             ; person ; room window shoe           ;
repair                      ; reparieren                         ; person ; device own repairable furniture ;
open                        ; auf|machen                         ; person ; opens ; carefully slowly
close                       ; zu|machen                          ; person ; opens ; quietly carefully
turn +on                    ; ein|schalten                       ; person ; device                     ;
turn +off                   ; aus|schalten                       ; person ; device                     ;
put put put +on             ; an|ziehen zieht gezogen            ; person ; shirt coat dress jacket shoe ;
tidy +up                    ; auf|räumen                         ; person ; room                       ;
bring brought brought +along; mit|bringen bringt gebracht        ; person ; thing gift food drink      ;
throw threw thrown +away    ; weg|werfen wirft geworfen          ; person ; thing                      ;
feed fed fed                ; füttern                            ; person ; animal baby                ;
catch caught caught         ; fangen fängt gefangen              ; cat    ; mouse bird                 ;
plant                       ; pflanzen                           ; person ; plant                      ;
build built built           ; bauen                              ; person ; house bridge table bed shelf boat ;
photograph                  ; fotografieren                      ; person ; person animal building plant ;

help                        ; helfen hilft geholfen              ; person ; DAT person                 ;
thank                       ; danken                             ; person ; DAT person                 ;
follow                      ; folgen +sein                       ; person dog ; DAT person                 ;
trust                       ; vertrauen                          ; person ; DAT person                 ;
congratulate                ; gratulieren                        ; person ; DAT person                 ;
listen =to                  ; zu|hören                           ; person ; DAT person                 ;
belong =to                  ; gehören gehört gehört              ; thing own pet furniture ; DAT person ;
wait (for)                  ; warten (auf)                       ; person ; ACC person public awaited ? ; at
think thought thought (of)  ; denken denkt gedacht (an)          ; person ; ACC person                 ;
talk (to)                   ; sprechen spricht gesprochen (mit)  ; person ; DAT person                 ;
dream (of)                  ; träumen (von)                      ; person ; DAT person own town        ;

give gave given             ; geben gibt gegeben                 ; person ; thing gift money           ; gives
show showed shown           ; zeigen                             ; person ; thing gift building room   ; gives
send sent sent              ; schicken                           ; person ; written gift money         ; gives
lend lent lent              ; leihen leiht geliehen              ; person ; thing own money            ; gives
bring brought brought       ; bringen bringt gebracht            ; person ; thing gift food drink      ; gives
tell told told              ; erzählen                           ; person ; story                      ; gives
explain                     ; erklären                           ; person ; issue                      ; gives-to
"""

# What the traits say:
#   command: can be told to a person        like: one can like to do it; takes plurals without an article
#   lasting: goes on for a while            routine: part of any day           plan: keeps people from other things
#   seasonal: fits a season or a year       once: not a habit                  scheduled: happens at a given hour
#   static: has no progressive              timed: static, yet has a time      present, mishap: only present, only past
#   general: takes no numbers               one: one thing at a time           pointed: its subject is this or that one
#   involuntary: not with can or must       preterite: the German past is one word
# Columns: trait ; verbs by their German infinitive
TRAITS = """
command     ; arbeiten tanzen schwimmen spielen einkaufen bleiben aufstehen zurückkommen ausruhen beeilen gehen kommen
command     ; laufen reisen fahren essen trinken kochen backen bestellen kaufen verkaufen lesen schreiben singen suchen
command     ; verstecken besuchen treffen begrüßen fragen umarmen einladen anrufen abholen tragen nehmen benutzen
command     ; waschen putzen reparieren aufmachen zumachen einschalten ausschalten anziehen aufräumen mitbringen
command     ; wegwerfen füttern pflanzen fotografieren helfen danken folgen vertrauen gratulieren zuhören warten denken
command     ; sprechen geben zeigen schicken leihen bringen erzählen erklären
like        ; arbeiten tanzen schwimmen spielen einkaufen reisen fliegen fahren essen trinken kochen backen bestellen
like        ; kaufen verkaufen lesen schreiben singen malen sehen brauchen haben lieben mögen lernen pflanzen
like        ; fotografieren
lasting     ; schlafen arbeiten tanzen spielen fernsehen essen trinken kochen backen lesen schreiben singen malen
lasting     ; waschen putzen reparieren aufräumen warten
routine     ; schlafen arbeiten einkaufen bleiben aufstehen einschlafen zurückkommen gehen kommen fahren essen trinken
routine     ; kochen lesen anrufen waschen putzen aufmachen zumachen einschalten ausschalten anziehen aufräumen füttern
plan        ; arbeiten einkaufen gehen reisen fliegen fahren kochen besuchen treffen anrufen abholen lernen helfen
seasonal    ; arbeiten schwimmen spielen reisen fliegen fahren kochen backen kaufen verkaufen lesen besuchen lernen
seasonal    ; bauen
once        ; beeilen verkaufen finden verstecken begrüßen umarmen einladen abholen verstehen wegwerfen fangen pflanzen
once        ; bauen fotografieren gratulieren schicken leihen
static      ; stehen liegen hängen wohnen anfangen enden hören sehen verlieren vergessen brauchen haben lieben mögen
static      ; kennen verstehen vertrauen gehören finden
timed       ; anfangen enden hören sehen verlieren vergessen verstehen finden
present     ; liegen mögen kennen gehören
mishap      ; verlieren vergessen
general     ; lieben mögen kennen
pointed     ; abfahren anfangen enden gehören
scheduled   ; abfahren anfangen enden
one         ; benutzen einschalten ausschalten anziehen warten träumen
involuntary ; lachen weinen lächeln ankommen aufwachen finden denken träumen
preterite   ; haben
"""

# Verb ; kinds of place where it is likely
VENUES = """
sleep ; room hotel garden
work  ; work
dance ; kitchen garden park restaurant beach
play  ; garden park room forest beach
sit   ; kitchen garden library park restaurant church beach
stay  ; room hotel city village hospital office library
eat   ; kitchen restaurant garden park
read  ; library garden room park kitchen
sing  ; church garden kitchen theatre school
wait  ; stop hotel restaurant office park
"""

# English ; German [comparative | -] ; kinds of noun. `-` means that it is not compared.
ADJECTIVES = """
old         ; alt älter     ; human adult animal vehicle building clothing furniture text thing device town minus
young       ; jung jünger   ; human adult animal
small       ; klein         ; child animal furniture building room thing town garden park forest lake minus
big         ; groß größer   ; animal furniture building room inside1 town garden park forest lake tree cake
new         ; neu           ; vehicle clothing furniture device thing text building repairable plus
beautiful   ; schön         ; animal clothing building room plant town art garden park beach lake song poem ring plus
good        ; gut besser    ; text food wine coffee restaurant answer question film concert song plus
friendly    ; freundlich    ; human adult kin plus
nice        ; nett          ; human adult
clever      ; klug klüger   ; human adult kin animal plus
strong      ; stark stärker ; man woman boy horse wild plus
rich        ; reich         ; man woman farmer artist doctor neighbour tourist
poor        ; arm ärmer     ; man woman farmer artist student minus
famous      ; berühmt       ; artist singer doctor museum church novel theatre city hotel
tired       ; müde          ; human adult kin animal state
ill         ; krank kränker ; human adult kin animal baby state
happy       ; glücklich     ; human adult kin baby state
sad         ; traurig       ; human adult kin state
hungry      ; hungrig       ; human adult animal baby state
angry       ; wütend        ; human adult kin state
lazy        ; faul          ; human adult pet donkey minus
dangerous   ; gefährlich    ; wild machine
expensive   ; teuer teurer  ; vehicle clothing furniture device gift food wine restaurant hotel ticket minus
cheap       ; billig        ; clothing furniture food device gift wine ticket plus
red         ; rot -         ; clothing vehicle furniture apple tomato flower rose ball door bag umbrella pencil colour
blue        ; blau -        ; clothing vehicle furniture flower ball door bag umbrella pencil cup plate colour
green       ; grün -        ; clothing vehicle furniture apple pear ball door bag umbrella pencil cup tree colour
yellow      ; gelb -        ; clothing vehicle furniture flower pear ball bag umbrella pencil cup rose colour
black       ; schwarz -     ; clothing vehicle furniture dog cat horse cow bird bag umbrella colour
white       ; weiß -        ; clothing vehicle furniture dog cat horse mouse rabbit plate cup rose door house colour
brown       ; braun -       ; clothing dog cat horse cow bear bag sofa chair rabbit colour
fresh       ; frisch        ; food milk juice water
delicious   ; lecker        ; food dish plus
hot         ; heiß          ; soup brew milk potato meat
cold        ; kalt kälter   ; cool soup room water meat
warm        ; warm wärmer   ; coat jacket scarf room bread milk roll plus
sweet       ; süß           ; fruit baked brew lemonade juice
ripe        ; reif          ; fruit
long        ; lang länger   ; text dress coat scarf film bridge concert word song minus
short       ; kurz kürzer   ; text dress film concert word answer song minus
interesting ; interessant   ; text town museum film question course language plus
boring      ; langweilig    ; text film course concert minus
funny       ; lustig        ; story film song postcard picture photo poem plus
difficult   ; schwierig     ; issue language poem course minus
important   ; wichtig       ; issue letter key
heavy       ; schwer        ; box suitcase bag furniture book machine minus
empty       ; leer          ; box suitcase bag cupboard glass cup plate room bus train
clean       ; sauber        ; clothing dishes room window beach hotel plus
dirty       ; schmutzig     ; clothing dishes room window vehicle minus
dark        ; dunkel dunkler ; room forest cinema minus
quiet       ; ruhig         ; room village hotel library park beach plus
modern      ; modern        ; building device kitchen office furniture city plus
fast        ; schnell       ; vehicle horse plus
slow        ; langsam       ; vehicle computer minus
"""

# Kind ; names, `=` where German has another one
NAMES = """
female ; Anna Maria Julia Lena Emma
male   ; Peter Paul Martin David Daniel
place  ; Berlin Hamburg Munich=München Vienna=Wien Cologne=Köln
place  ; Germany=Deutschland France=Frankreich Italy=Italien Spain=Spanien Austria=Österreich
"""

# Fixed phrases: English ; German ; kinds. Units are divided by spaces and stand in the same order in both languages;
# `_` joins words of one unit.
PHRASES = """
yesterday          ; gestern          ; time anyone past
last week          ; letzte Woche     ; time past
last year          ; letztes Jahr     ; time past-season
this morning       ; heute Morgen     ; time anyone past
today              ; heute            ; time anyone past now future
now                ; jetzt            ; time anyone now
at_the moment      ; im Moment        ; time anyone now
every day          ; jeden Tag        ; time anyone habit
every week         ; jede Woche       ; time habit
every morning      ; jeden Morgen     ; time anyone habit
every evening      ; jeden Abend      ; time anyone habit
in_the morning     ; am Morgen        ; time anyone habit
in_the afternoon   ; am Nachmittag    ; time anyone habit
in_the evening     ; am Abend         ; time anyone habit
in summer          ; im Sommer        ; time past-season habit-season future-season
in winter          ; im Winter        ; time past-season habit-season future-season
in spring          ; im Frühling      ; time past-season habit-season future-season
in autumn          ; im Herbst        ; time past-season habit-season future-season
tomorrow           ; morgen           ; time anyone future
soon               ; bald             ; time anyone future
this evening       ; heute Abend      ; time future
next week          ; nächste Woche    ; time future
next year          ; nächstes Jahr    ; time future-season
on Monday          ; am Montag        ; time past future
on Tuesday         ; am Dienstag      ; time past future
on Wednesday       ; am Mittwoch      ; time past future
on Thursday        ; am Donnerstag    ; time past future
on Friday          ; am Freitag       ; time past future
on Saturday        ; am Samstag       ; time past future
on Sunday          ; am Sonntag       ; time past future
often              ; oft              ; frequency
always             ; immer            ; frequency
sometimes          ; manchmal         ; frequency
usually            ; meistens         ; frequency
never              ; nie              ; frequency like-not
already            ; schon            ; done like-not
yet                ; noch             ; yet
well               ; gut              ; manner
loudly             ; laut             ; manner
quietly            ; leise            ; manner
slowly             ; langsam          ; manner
quickly            ; schnell          ; manner
carefully          ; vorsichtig       ; manner
alone              ; allein           ; manner
here               ; hier             ; place
at home            ; zu Hause         ; place
home               ; nach_Hause       ; goal
where              ; wo               ; question place
where              ; wohin            ; question goal
when               ; wann             ; question time
why                ; warum            ; question reason
how much           ; wie viel         ; question price
"""

NUMBERS = "two zwei  three drei  four vier  five fünf  six sechs  seven sieben  eight acht  nine neun  ten zehn"
TENS = "twenty zwanzig  thirty dreißig  forty vierzig  fifty fünfzig  sixty sechzig"
HOURS = "one ein  " + NUMBERS + "  eleven elf  twelve zwölf"

# Verbs that take a clause; columns as in VERBS, the traits say which clauses.
CLAUSE_VERBS = """
say said said            ; sagen                              ; person ; ; that
think thought thought    ; denken denkt gedacht               ; person ; ; that
believe                  ; glauben                            ; person ; ; that
know knew known          ; wissen weiß gewusst                ; person ; ; that where
hope                     ; hoffen                             ; person ; ; that to
ask                      ; fragen                             ; person ; ; whether where
try                      ; versuchen                          ; person ; ; to
decide                   ; beschließen beschließt beschlossen ; person ; ; to
promise                  ; versprechen verspricht versprochen ; person ; ; to
forget forgot forgotten  ; vergessen vergisst vergessen       ; person ; ; to
"""
