"""The words of the demo grammar, as plain tables; `lexicon` reads them, nothing else does.

Columns are divided by `;` and `#` starts a comment. Regular forms are left out and derived: a noun gives an English
plural and a verb gives forms only where the rule would be wrong.
"""

# English singular [plural] ; German article, singular, plural [weak] ; kinds [mass | single] [feminine=...]
NOUNS = """
man men              ; der Mann Männer                ; human male
woman women          ; die Frau Frauen                ; human female
child children       ; das Kind Kinder                ; human ours
boy                  ; der Junge Jungen weak          ; human male
girl                 ; das Mädchen Mädchen            ; human female
baby                 ; das Baby Babys                 ; baby
friend               ; der Freund Freunde             ; human ours male
neighbour            ; der Nachbar Nachbarn weak      ; human ours male
colleague            ; der Kollege Kollegen weak      ; human ours male
guest                ; der Gast Gäste                 ; human ours male
customer             ; der Kunde Kunden weak          ; human male
tourist              ; der Tourist Touristen weak     ; human male
teacher              ; der Lehrer Lehrer              ; human ours male job feminine=Lehrerin
doctor               ; der Arzt Ärzte                 ; human ours male job feminine=Ärztin
student              ; der Student Studenten weak     ; human male job feminine=Studentin
cook                 ; der Koch Köche                 ; human male job feminine=Köchin
baker                ; der Bäcker Bäcker              ; human male job feminine=Bäckerin
farmer               ; der Bauer Bauern weak          ; human male job feminine=Bäuerin
artist               ; der Künstler Künstler          ; human male job feminine=Künstlerin
singer               ; der Sänger Sänger              ; human male job feminine=Sängerin
gardener             ; der Gärtner Gärtner            ; human male job feminine=Gärtnerin
waiter               ; der Kellner Kellner            ; human male
judge                ; der Richter Richter            ; human male job feminine=Richterin
pilot                ; der Pilot Piloten weak         ; human male job feminine=Pilotin
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
strawberry           ; die Erdbeere Erdbeeren         ; food fruit
tomato tomatoes      ; die Tomate Tomaten             ; food fruit
potato potatoes      ; die Kartoffel Kartoffeln       ; food cooked
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
shoe                 ; der Schuh Schuhe               ; clothing
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
# +sein, +sich, (preposition) ; kinds of subject ; case and kinds of object, ? = may be missing ; traits
VERBS = """
sleep slept slept            ; schlafen schläft geschlafen               ; person animal baby;  ; at well
laugh                        ; lachen                                    ; person baby       ;  ; loudly
cry                          ; weinen                                    ; person baby       ;  ; loudly
work                         ; arbeiten                                  ; person            ;  ; at command alone with
dance                        ; tanzen                                    ; person            ;  ; at command well with alone
swim swam swum               ; schwimmen schwimmt geschwommen +sein      ; person            ;  ; shore command well with
play                         ; spielen                                   ; person animal baby;  ; at command quietly with
smile                        ; lächeln                                   ; person baby       ;  ;
shop                         ; ein|kaufen                                ; person            ;  ; command
watch =TV                    ; fern|sehen sieht gesehen                  ; person            ;  ;
bark                         ; bellen bellt gebellt                                    ; barks             ;  ; loudly
sit sat sat                  ; sitzen sitzt gesessen                     ; person            ;  ; seat!
stand stood stood            ; stehen steht gestanden                    ; furniture dishes  ;  ; spot! static
lie lay lain                 ; liegen liegt gelegen                      ; thing             ;  ; spot! static present
hang hung hung               ; hängen hängt gehangen                     ; art               ;  ; wall! static
live                         ; wohnen                                    ; person            ;  ; home! static
stay                         ; bleiben bleibt geblieben +sein            ; person            ;  ; at! command
arrive                       ; an|kommen kommt gekommen +sein            ; person public     ;  ; stop
leave left left              ; ab|fahren fährt gefahren +sein            ; public            ;  ;
begin began begun            ; an|fangen fängt gefangen                  ; event             ;  ; static
end                          ; enden                                     ; event             ;  ; static
ring rang rung               ; klingeln                                  ; rings             ;  ; loudly
get got got =up              ; auf|stehen steht gestanden +sein          ; person            ;  ; command
wake woke woken =up          ; auf|wachen +sein                          ; person baby       ;  ;
fall fell fallen =asleep     ; ein|schlafen schläft geschlafen +sein     ; person animal baby;  ;
come came come =back         ; zurück|kommen kommt gekommen +sein        ; person            ;  ; command
rest                         ; aus|ruhen +sich                           ; person            ;  ; command
hurry                        ; beeilen +sich                             ; person            ;  ; command
go went gone                 ; gehen geht gegangen +sein                 ; person            ;  ; to! command
come came come               ; kommen kommt gekommen +sein               ; person            ;  ; home-to! command
run ran run                  ; laufen läuft gelaufen +sein               ; person animal     ;  ; to! command quickly
travel                       ; reisen +sein                              ; person            ;  ; city-to! command
fly flew flown               ; fliegen fliegt geflogen +sein             ; person            ;  ; city-to!
drive drove driven           ; fahren fährt gefahren +sein               ; person            ;  ; city-to! command

eat ate eaten                ; essen isst gegessen                       ; person            ; food ; at command like
drink drank drunk            ; trinken trinkt getrunken                  ; person            ; drink ; command like
cook                         ; kochen                                    ; person            ; cooked ? ; command like
bake                         ; backen backt gebacken                     ; person            ; baked ; command like
order                        ; bestellen                                 ; person            ; food drink ; command
buy bought bought            ; kaufen                                    ; person            ; gift food drink own furniture clothing ; command gives? like
sell sold sold               ; verkaufen                                 ; person            ; gift own furniture clothing food ; command
read read read               ; lesen liest gelesen                       ; person            ; text ; at command like slowly
write wrote written          ; schreiben schreibt geschrieben            ; person            ; written ; command gives? like
sing sang sung               ; singen singt gesungen                     ; person            ; song ? ; at command well loudly like with
paint                        ; malen                                     ; person            ; art ; like
hear heard heard             ; hören                                     ; person            ; person animal heard ; static
see saw seen                 ; sehen sieht gesehen                       ; person animal     ; person animal thing building vehicle film ; static
find found found             ; finden findet gefunden                    ; person            ; thing money ;
look =for                    ; suchen                                    ; person            ; thing person pet work ; command
lose lost lost               ; verlieren verliert verloren               ; person            ; thing money ; static
forget forgot forgotten      ; vergessen vergisst vergessen              ; person            ; thing learnt written ; static
hide hid hidden              ; verstecken                                ; person            ; thing money gift ; command
need                         ; brauchen                                  ; person            ; thing money time own clothing furniture ; static
have had had                 ; haben hat gehabt                          ; person            ; thing gift own pet furniture question problem money time ; static preterite
love                         ; lieben                                    ; person            ; person pet town language heard ; static
like                         ; mögen mag gemocht                         ; person            ; person animal food drink town clothing building text ; static present
know knew known              ; kennen kennt gekannt                      ; person            ; person town text song building ; static present
visit                        ; besuchen                                  ; person            ; person sight town ; command
meet met met                 ; treffen trifft getroffen                  ; person            ; person ; command
greet                        ; begrüßen                                  ; person            ; person ; command
ask                          ; fragen                                    ; person            ; person ; command
hug                          ; umarmen                                   ; person            ; person pet ; command
invite                       ; ein|laden lädt geladen                    ; person            ; person ; command
call                         ; an|rufen ruft gerufen                     ; person            ; person ; command
pick +up                     ; ab|holen                                  ; person            ; person ; command
understand understood understood; verstehen versteht verstanden             ; person            ; person issue language text ; static
learn                        ; lernen                                    ; person            ; learnt song ; like
carry                        ; tragen trägt getragen                     ; person            ; thing furniture ; command
take took taken              ; nehmen nimmt genommen                     ; person            ; thing ; command
use                          ; benutzen                                  ; person            ; device own dishes ; command
wash                         ; waschen wäscht gewaschen                  ; person            ; clothing dishes own fruit ; command
clean                        ; putzen                                    ; person            ; room window shoe ; command
repair                       ; reparieren                                ; person            ; device vehicle repairable furniture ; command
open                         ; auf|machen                                ; person            ; opens ; command carefully slowly
close                        ; zu|machen                                 ; person            ; opens ; command quietly carefully
turn +on                     ; ein|schalten                              ; person            ; device ; command
turn +off                    ; aus|schalten                              ; person            ; device ; command
put put put +on              ; an|ziehen zieht gezogen                   ; person            ; clothing ; command
tidy +up                     ; auf|räumen                                ; person            ; room ; command
bring brought brought +along ; mit|bringen bringt gebracht               ; person            ; thing gift food drink ; command
throw threw thrown +away     ; weg|werfen wirft geworfen                 ; person            ; thing ; command
feed fed fed                 ; füttern                                   ; person            ; animal baby ; command
catch caught caught          ; fangen fängt gefangen                     ; cat               ; mouse bird ;
plant                        ; pflanzen                                  ; person            ; plant ; command
build built built            ; bauen                                     ; person            ; building furniture ;
photograph                   ; fotografieren                             ; person            ; person animal building plant ; command

help                         ; helfen hilft geholfen                     ; person            ; DAT person ; command
thank                        ; danken                                    ; person            ; DAT person ; command
follow                       ; folgen +sein                              ; person animal     ; DAT person ; command
trust                        ; vertrauen                                 ; person            ; DAT person ; command static
congratulate                 ; gratulieren                               ; person            ; DAT person ; command
listen =to                   ; zu|hören                                  ; person            ; DAT person ; command
belong =to                   ; gehören gehört gehört                     ; thing own pet furniture; DAT person ; static
wait (for)                   ; warten (auf)                              ; person            ; ACC person public awaited ? ; command at
think thought thought (of)   ; denken denkt gedacht (an)                 ; person            ; ACC person ; command
talk (to)                    ; sprechen spricht gesprochen (mit)         ; person            ; DAT person ; command
dream (of)                   ; träumen (von)                             ; person            ; DAT person own town ;

give gave given              ; geben gibt gegeben                        ; person            ; thing gift money ; command gives
show showed shown            ; zeigen                                    ; person            ; thing gift building room ; command gives
send sent sent               ; schicken                                  ; person            ; written gift money ; command gives
lend lent lent               ; leihen leiht geliehen                     ; person            ; thing own money ; command gives
bring brought brought        ; bringen bringt gebracht                   ; person            ; thing gift food drink ; command gives
tell told told               ; erzählen                                  ; person            ; story ; command gives
explain                      ; erklären                                  ; person            ; issue ; command gives-to
"""

# English ; German [comparative | -] ; kinds of noun. `-` means that it is not compared.
ADJECTIVES = """
old         ; alt älter     ; human animal vehicle building clothing furniture text thing device town
young       ; jung jünger   ; human animal
small       ; klein         ; child animal furniture building room thing town garden park forest lake
big         ; groß größer   ; animal furniture building room inside1 town garden park forest lake tree cake
new         ; neu           ; vehicle clothing furniture device thing text building repairable
beautiful   ; schön         ; animal clothing building room plant town art garden park beach lake song poem ring watch
good        ; gut besser    ; text food wine coffee restaurant answer question film concert song
friendly    ; freundlich    ; human kin
nice        ; nett          ; human
clever      ; klug klüger   ; human kin animal
strong      ; stark stärker ; man woman boy horse wild
rich        ; reich         ; man woman farmer artist doctor neighbour tourist
poor        ; arm ärmer     ; man woman farmer artist student
famous      ; berühmt       ; artist singer doctor museum church novel theatre city hotel
tired       ; müde          ; human kin animal state
ill         ; krank kränker ; human kin animal baby state
happy       ; glücklich     ; human kin baby state
sad         ; traurig       ; human kin state
hungry      ; hungrig       ; human animal baby state
angry       ; wütend        ; human kin state
lazy        ; faul          ; human pet donkey
dangerous   ; gefährlich    ; wild machine
expensive   ; teuer teurer  ; vehicle clothing furniture device gift food wine restaurant hotel ticket
cheap       ; billig        ; clothing furniture food device gift wine ticket
red         ; rot -         ; clothing vehicle furniture apple tomato flower rose ball door bag umbrella pencil colour
blue        ; blau -        ; clothing vehicle furniture flower ball door bag umbrella pencil cup plate colour
green       ; grün -        ; clothing vehicle furniture apple pear ball door bag umbrella pencil cup tree colour
yellow      ; gelb -        ; clothing vehicle furniture flower pear ball bag umbrella pencil cup rose colour
black       ; schwarz -     ; clothing vehicle furniture dog cat horse cow bird bag umbrella colour
white       ; weiß -        ; clothing vehicle furniture dog cat horse mouse rabbit plate cup rose door house colour
brown       ; braun -       ; clothing dog cat horse cow bear bag sofa chair rabbit colour
fresh       ; frisch        ; food milk juice water
delicious   ; lecker        ; food dish
hot         ; heiß          ; soup brew milk potato meat
cold        ; kalt kälter   ; cool soup room water meat
warm        ; warm wärmer   ; coat jacket scarf room bread milk roll
sweet       ; süß           ; fruit baked brew lemonade juice
ripe        ; reif          ; fruit
long        ; lang länger   ; text dress coat scarf film bridge concert word song
short       ; kurz kürzer   ; text dress film concert word answer song
interesting ; interessant   ; text town museum film question course language
boring      ; langweilig    ; text film course concert
funny       ; lustig        ; story film song postcard picture photo poem
difficult   ; schwierig     ; issue language poem course
important   ; wichtig       ; issue letter key
heavy       ; schwer        ; box suitcase bag furniture book machine
empty       ; leer          ; box suitcase bag cupboard glass cup plate room bus train
clean       ; sauber        ; clothing dishes room window beach hotel
dirty       ; schmutzig     ; clothing dishes room window vehicle
dark        ; dunkel dunkler ; room forest cinema
quiet       ; ruhig         ; room village hotel library park beach
modern      ; modern        ; building device kitchen office furniture city
fast        ; schnell       ; vehicle horse
slow        ; langsam       ; vehicle computer
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
yesterday          ; gestern          ; time past
last week          ; letzte Woche     ; time past
last year          ; letztes Jahr     ; time past
this morning       ; heute Morgen     ; time past
today              ; heute            ; time past now future
now                ; jetzt            ; time now
at_the moment      ; im Moment        ; time now
every day          ; jeden Tag        ; time habit
every week         ; jede Woche       ; time habit
every morning      ; jeden Morgen     ; time habit
every evening      ; jeden Abend      ; time habit
in_the morning     ; am Morgen        ; time habit
in_the afternoon   ; am Nachmittag    ; time habit
in_the evening     ; am Abend         ; time habit
in summer          ; im Sommer        ; time habit
in winter          ; im Winter        ; time habit
in spring          ; im Frühling      ; time habit
in autumn          ; im Herbst        ; time habit
tomorrow           ; morgen           ; time future
soon               ; bald             ; time future
this evening       ; heute Abend      ; time future
next week          ; nächste Woche    ; time future
next year          ; nächstes Jahr    ; time future
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
already            ; schon            ; like-not
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
