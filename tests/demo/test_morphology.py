"""German inflection against paradigms written by hand."""

import pytest

from heedful.demo import lexicon, morphology, structure
from heedful.demo.lexicon import MANY, NO_ARTICLE, THE, THIS, A, Determiner

NOUNS = {noun.english: noun for noun in lexicon.NOUNS}
ADJECTIVES = {word.english: word for word in lexicon.ADJECTIVES}
VERBS = {verb.prefix + verb.infinitive: verb for verb in lexicon.VERBS}
KEIN = Determiner("", "", "kein", "ein", False)

# Declension of "old man, old woman, old child, old people" in nominative, accusative, dative and genitive.
PHRASES = {
    "weak": (
        THE,
        """
        der alte Mann    / die alte Frau   / das alte Kind     / die alten Männer
        den alten Mann   / die alte Frau   / das alte Kind     / die alten Männer
        dem alten Mann   / der alten Frau  / dem alten Kind    / den alten Männern
        des alten Mannes / der alten Frau  / des alten Kindes  / der alten Männer
        """,
    ),
    "weak after dieser": (
        THIS,
        """
        dieser alte Mann    / diese alte Frau   / dieses alte Kind   / diese alten Männer
        diesen alten Mann   / diese alte Frau   / dieses alte Kind   / diese alten Männer
        diesem alten Mann   / dieser alten Frau / diesem alten Kind  / diesen alten Männern
        dieses alten Mannes / dieser alten Frau / dieses alten Kindes / dieser alten Männer
        """,
    ),
    "mixed": (
        KEIN,
        """
        kein alter Mann     / keine alte Frau   / kein altes Kind     / keine alten Männer
        keinen alten Mann   / keine alte Frau   / kein altes Kind     / keine alten Männer
        keinem alten Mann   / keiner alten Frau / keinem alten Kind   / keinen alten Männern
        keines alten Mannes / keiner alten Frau / keines alten Kindes / keiner alten Männer
        """,
    ),
    "strong": (
        NO_ARTICLE,
        """
        alter Mann   / alte Frau  / altes Kind   / alte Männer
        alten Mann   / alte Frau  / altes Kind   / alte Männer
        altem Mann   / alter Frau / altem Kind   / alten Männern
        alten Mannes / alter Frau / alten Kindes / alter Männer
        """,
    ),
}


@pytest.mark.parametrize("name", PHRASES)
def test_noun_phrases_decline(name: str) -> None:
    determiner, table = PHRASES[name]
    columns = [("man", False), ("woman", False), ("child", False), ("man", True)]
    for case, line in zip(morphology.CASES, table.strip().splitlines(), strict=True):
        for (english, plural), expected in zip(columns, line.split("/"), strict=True):
            noun = NOUNS[english]
            gender = "p" if plural else noun.gender
            words = [
                morphology.determiner(determiner, case, gender),
                morphology.adjective(ADJECTIVES["old"], determiner.pattern, case, gender),
                morphology.noun(noun, case, plural),
            ]
            assert " ".join(words).split() == expected.split()


def test_strong_plural_determiners() -> None:
    assert [morphology.determiner(MANY, case, "p") for case in morphology.CASES] == [
        "viele",
        "viele",
        "vielen",
        "vieler",
    ]
    assert [morphology.determiner(A, case, "f") for case in morphology.CASES] == ["eine", "eine", "einer", "einer"]
    three = lexicon.NUMBERS[1]
    assert {morphology.determiner(three, case, "p") for case in morphology.CASES} == {"drei"}


@pytest.mark.parametrize(
    ("english", "forms"),
    [
        ("boy", "Junge Jungen Jungen Jungen / Jungen Jungen Jungen Jungen"),
        ("student", "Student Studenten Studenten Studenten / Studenten Studenten Studenten Studenten"),
        ("neighbour", "Nachbar Nachbarn Nachbarn Nachbarn / Nachbarn Nachbarn Nachbarn Nachbarn"),
        ("farmer", "Bauer Bauern Bauern Bauern / Bauern Bauern Bauern Bauern"),
        ("bear", "Bär Bären Bären Bären / Bären Bären Bären Bären"),
        ("teacher", "Lehrer Lehrer Lehrer Lehrers / Lehrer Lehrer Lehrern Lehrer"),
        ("car", "Auto Auto Auto Autos / Autos Autos Autos Autos"),
        ("bus", "Bus Bus Bus Busses / Busse Busse Bussen Busse"),
        ("house", "Haus Haus Haus Hauses / Häuser Häuser Häusern Häuser"),
        ("girl", "Mädchen Mädchen Mädchen Mädchens / Mädchen Mädchen Mädchen Mädchen"),
        ("flower", "Blume Blume Blume Blume / Blumen Blumen Blumen Blumen"),
        ("apple", "Apfel Apfel Apfel Apfels / Äpfel Äpfel Äpfeln Äpfel"),
        ("tree", "Baum Baum Baum Baumes / Bäume Bäume Bäumen Bäume"),
    ],
)
def test_nouns_decline(english: str, forms: str) -> None:
    singular, plural = (half.split() for half in forms.split("/"))
    assert [morphology.noun(NOUNS[english], case, False) for case in morphology.CASES] == singular
    assert [morphology.noun(NOUNS[english], case, True) for case in morphology.CASES] == plural


def test_adjective_stems() -> None:
    forms = {"expensive": "teures", "dark": "dunkles", "tired": "müdes", "clean": "sauberes", "delicious": "leckeres"}
    assert {english: morphology.adjective(ADJECTIVES[english], "ein", "nom", "n") for english in forms} == forms


def test_comparatives() -> None:
    expected = {"old": "älter", "big": "größer", "good": "besser", "expensive": "teurer", "new": "neuer", "red": ""}
    assert {english: ADJECTIVES[english].comparative for english in expected} == expected


def test_pronouns() -> None:
    rows = [(p.english, p.english_object, p.nom, p.acc, p.dat) for p in structure.PRONOUNS]
    assert rows == [
        ("I", "me", "ich", "mich", "mir"),
        ("you", "you", "du", "dich", "dir"),
        ("he", "him", "er", "ihn", "ihm"),
        ("she", "her", "sie", "sie", "ihr"),
        ("we", "us", "wir", "uns", "uns"),
        ("they", "them", "sie", "sie", "ihnen"),
    ]


def test_relative_pronouns() -> None:
    rows = [" ".join(morphology.RELATIVE[case, gender] for gender in "mfnp") for case in ("nom", "acc", "dat")]
    assert rows == ["der die das die", "den die das die", "dem der dem denen"]


# Every verb of the lexicon: ich, du, er, participle with its auxiliary, and the du imperative where it is used.
CONJUGATIONS = """
schlafen schlafe schläfst schläft hat geschlafen / lachen lache lachst lacht hat gelacht
weinen weine weinst weint hat geweint / arbeiten arbeite arbeitest arbeitet hat gearbeitet arbeite
tanzen tanze tanzt tanzt hat getanzt tanz / schwimmen schwimme schwimmst schwimmt ist geschwommen schwimm
spielen spiele spielst spielt hat gespielt spiel / lächeln lächle lächelst lächelt hat gelächelt
einkaufen kaufe kaufst kauft hat eingekauft kauf / fernsehen sehe siehst sieht hat ferngesehen
bellen belle bellst bellt hat gebellt / sitzen sitze sitzt sitzt hat gesessen
stehen stehe stehst steht hat gestanden / liegen liege liegst liegt hat gelegen
hängen hänge hängst hängt hat gehangen / wohnen wohne wohnst wohnt hat gewohnt
bleiben bleibe bleibst bleibt ist geblieben bleib / ankommen komme kommst kommt ist angekommen
abfahren fahre fährst fährt ist abgefahren / anfangen fange fängst fängt hat angefangen
enden ende endest endet hat geendet / klingeln klingle klingelst klingelt hat geklingelt
aufstehen stehe stehst steht ist aufgestanden steh / aufwachen wache wachst wacht ist aufgewacht
einschlafen schlafe schläfst schläft ist eingeschlafen / zurückkommen komme kommst kommt ist zurückgekommen komm
ausruhen ruhe ruhst ruht hat ausgeruht ruh / beeilen beeile beeilst beeilt hat beeilt beeil
gehen gehe gehst geht ist gegangen geh / kommen komme kommst kommt ist gekommen komm
laufen laufe läufst läuft ist gelaufen lauf / reisen reise reist reist ist gereist reise
fliegen fliege fliegst fliegt ist geflogen / fahren fahre fährst fährt ist gefahren fahr
essen esse isst isst hat gegessen iss / trinken trinke trinkst trinkt hat getrunken trink
kochen koche kochst kocht hat gekocht koch / backen backe backst backt hat gebacken back
bestellen bestelle bestellst bestellt hat bestellt bestell / kaufen kaufe kaufst kauft hat gekauft kauf
verkaufen verkaufe verkaufst verkauft hat verkauft verkauf / lesen lese liest liest hat gelesen lies
schreiben schreibe schreibst schreibt hat geschrieben schreib / singen singe singst singt hat gesungen sing
malen male malst malt hat gemalt / hören höre hörst hört hat gehört
sehen sehe siehst sieht hat gesehen / finden finde findest findet hat gefunden
suchen suche suchst sucht hat gesucht such / verlieren verliere verlierst verliert hat verloren
vergessen vergesse vergisst vergisst hat vergessen / verstecken verstecke versteckst versteckt hat versteckt versteck
brauchen brauche brauchst braucht hat gebraucht / haben habe hast hat hat gehabt
lieben liebe liebst liebt hat geliebt / mögen mag magst mag hat gemocht
kennen kenne kennst kennt hat gekannt / besuchen besuche besuchst besucht hat besucht besuch
treffen treffe triffst trifft hat getroffen triff / begrüßen begrüße begrüßt begrüßt hat begrüßt begrüß
fragen frage fragst fragt hat gefragt frag / umarmen umarme umarmst umarmt hat umarmt umarme
einladen lade lädst lädt hat eingeladen lade / anrufen rufe rufst ruft hat angerufen ruf
abholen hole holst holt hat abgeholt hol / verstehen verstehe verstehst versteht hat verstanden
lernen lerne lernst lernt hat gelernt / tragen trage trägst trägt hat getragen trag
nehmen nehme nimmst nimmt hat genommen nimm / benutzen benutze benutzt benutzt hat benutzt benutz
waschen wasche wäschst wäscht hat gewaschen wasch / putzen putze putzt putzt hat geputzt putz
reparieren repariere reparierst repariert hat repariert repariere / aufmachen mache machst macht hat aufgemacht mach
zumachen mache machst macht hat zugemacht mach / einschalten schalte schaltest schaltet hat eingeschaltet schalte
ausschalten schalte schaltest schaltet hat ausgeschaltet schalte / anziehen ziehe ziehst zieht hat angezogen zieh
aufräumen räume räumst räumt hat aufgeräumt räum / mitbringen bringe bringst bringt hat mitgebracht bring
wegwerfen werfe wirfst wirft hat weggeworfen wirf / füttern füttere fütterst füttert hat gefüttert füttere
fangen fange fängst fängt hat gefangen / pflanzen pflanze pflanzt pflanzt hat gepflanzt pflanz
bauen baue baust baut hat gebaut / fotografieren fotografiere fotografierst fotografiert hat fotografiert fotografiere
helfen helfe hilfst hilft hat geholfen hilf / danken danke dankst dankt hat gedankt danke
folgen folge folgst folgt ist gefolgt folge / vertrauen vertraue vertraust vertraut hat vertraut vertrau
gratulieren gratuliere gratulierst gratuliert hat gratuliert gratuliere / zuhören höre hörst hört hat zugehört hör
gehören gehöre gehörst gehört hat gehört / warten warte wartest wartet hat gewartet warte
denken denke denkst denkt hat gedacht denk / sprechen spreche sprichst spricht hat gesprochen sprich
träumen träume träumst träumt hat geträumt / geben gebe gibst gibt hat gegeben gib
zeigen zeige zeigst zeigt hat gezeigt zeig / schicken schicke schickst schickt hat geschickt schick
leihen leihe leihst leiht hat geliehen leih / bringen bringe bringst bringt hat gebracht bring
erzählen erzähle erzählst erzählt hat erzählt erzähl / erklären erkläre erklärst erklärt hat erklärt erklär
"""


def test_every_verb_conjugates() -> None:
    rows = [entry.split() for line in CONJUGATIONS.strip().splitlines() for entry in line.split("/")]
    assert {row[0] for row in rows} == set(VERBS)
    for infinitive, ich, du, er, auxiliary, participle, *imperative in rows:
        verb = VERBS[infinitive]
        assert morphology.present(verb)[:3] == (ich, du, er)
        assert ("ist" if verb.sein else "hat", verb.prefix + verb.german_participle) == (auxiliary, participle)
        assert bool(imperative) == ("command" in verb.traits), infinitive
        assert not imperative or morphology.imperative(verb) == imperative[0]


def test_english_verbs_inflect() -> None:
    forms = {verb.base: lexicon.english_ing(verb.base) for verb in lexicon.VERBS}
    expected = "swimming running sitting getting beginning visiting opening writing lying travelling tidying hugging"
    assert set(expected.split()) <= set(forms.values())
    pasts = {verb.past for verb in lexicon.VERBS}
    assert {"hugged", "tidied", "carried", "travelled", "visited", "opened", "planted", "danced"} <= pasts
