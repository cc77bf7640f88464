"""Structures said in both languages, against sentences checked by hand."""

import dataclasses

import pytest

from heedful.demo import lexicon, render
from heedful.demo.lexicon import (
    ALL,
    BE,
    HOW_MANY,
    MANY,
    NO_ARTICLE,
    NUMBERS,
    POSSESSIVES,
    RAIN,
    THE,
    THERE_IS,
    THIS,
    A,
    Modal,
    Noun,
    Verb,
    phrase,
)
from heedful.demo.phrases import adjective, phrases, question
from heedful.demo.structure import (
    HE,
    IT,
    SHE,
    THERE,
    THEY,
    WE,
    WHAT,
    WHO,
    YOU,
    Both,
    Clause,
    Comparison,
    Degree,
    Gap,
    I,
    Linked,
    NounPhrase,
    Place,
    Sentence,
)

MY, YOUR, HIS, HER, OUR, THEIR = POSSESSIVES
ANNA, PETER = (next(name for name in lexicon.NAMES if name.english == english) for english in ("Anna", "Peter"))
BERLIN = next(name for name in lexicon.NAMES if name.english == "Berlin")


def noun(english: str) -> Noun:
    return next(noun for noun in lexicon.NOUNS if noun.english == english)


def np(english: str, determiner: lexicon.Determiner = THE, *qualities: str, plural: bool = False) -> NounPhrase:
    return NounPhrase(noun(english), determiner, plural, tuple(adjective(word) for word in qualities))


def verb(infinitive: str) -> Verb:
    return next(verb for verb in lexicon.VERBS if verb.prefix + verb.infinitive == infinitive)


def modal(english: str) -> Modal:
    return next(modal for modal in lexicon.MODALS if modal.english == english)


def when(english: str) -> lexicon.Phrase:
    return next(
        entry for entry in lexicon.PHRASES if " ".join(word for unit in entry.english for word in unit) == english
    )


def say(subject: object, infinitive: str, tense: str = "present", **parts: object) -> Clause:
    return Clause(subject, verb(infinitive), tense, **parts)  # type: ignore[arg-type]


def owned(english: str, owner: object, *qualities: str) -> NounPhrase:
    return dataclasses.replace(np(english, THE, *qualities), owner=owner)  # type: ignore[arg-type]


SAW_DOG = say(np("man"), "sehen", "past", object=Gap(np("dog")))
CHILDREN = np("child", plural=True)
YESTERDAY = when("yesterday")
BOUGHT = Linked("that", say(CHILDREN, "kaufen", "past", object=np("car", THE, "red"), time=YESTERDAY))
GARDEN = Place("in", "in", "dat", np("garden"))
STATEMENT, QUESTION, COMMAND = "statement", "question", "command"

# fmt: off
KNOWN: list[tuple[str, Clause, str, str]] = [
    # Tenses and verb forms
    (STATEMENT, say(np("dog"), "schlafen"), "The dog sleeps.", "Der Hund schläft."),
    (STATEMENT, say(np("dog"), "schlafen", "progressive"), "The dog is sleeping.", "Der Hund schläft."),
    (STATEMENT, say(ANNA, "aufmachen", "past", object=np("door")),
     "Anna opened the door.", "Anna hat die Tür aufgemacht."),
    (STATEMENT, say(ANNA, "aufmachen", object=np("window", A)), "Anna opens a window.", "Anna macht ein Fenster auf."),
    (STATEMENT, say(WE, "aufstehen", "past"), "We got up.", "Wir sind aufgestanden."),
    (STATEMENT, say(I, "haben", "past", object=np("key")), "I had the key.", "Ich hatte den Schlüssel."),
    (STATEMENT, say(THEY, "fahren", "future", place=Place("to", "nach", "dat", BERLIN)),
     "They will drive to Berlin.", "Sie werden nach Berlin fahren."),
    (STATEMENT, say(np("guest", THE, plural=True), "ankommen", "perfect", frequency=when("already")),
     "The guests have already arrived.", "Die Gäste sind schon angekommen."),
    (STATEMENT, say(SHE, "lesen", "past progressive", object=np("book", A)),
     "She was reading a book.", "Sie hat ein Buch gelesen."),
    (STATEMENT, say(YOU, "ausruhen", "progressive"), "You are resting.", "Du ruhst dich aus."),
    # Cases, determiners and adjectives
    (STATEMENT, say(np("boy"), "essen", "progressive", object=np("apple", A, "red")),
     "The boy is eating a red apple.", "Der Junge isst einen roten Apfel."),
    (STATEMENT, say(np("girl"), "trinken", object=np("milk", NO_ARTICLE, "cold")),
     "The girl drinks cold milk.", "Das Mädchen trinkt kalte Milch."),
    (STATEMENT, say(np("teacher"), "helfen", object=np("student", THE, "young")),
     "The teacher helps the young student.", "Der Lehrer hilft dem jungen Studenten."),
    (STATEMENT, say(np("child", ALL, plural=True), "mögen", object=np("cake", THIS, "sweet")),
     "All the children like this sweet cake.", "Alle Kinder mögen diesen süßen Kuchen."),
    (STATEMENT, say(np("woman"), "kaufen", "past", object=np("flower", NUMBERS[1], "beautiful", plural=True)),
     "The woman bought three beautiful flowers.", "Die Frau hat drei schöne Blumen gekauft."),
    (STATEMENT, say(np("father", HIS), "verkaufen", "future", object=np("car", OUR, "old")),
     "His father will sell our old car.", "Sein Vater wird unser altes Auto verkaufen."),
    (STATEMENT, say(HE, "schicken", "past", recipient=np("aunt", HER), object=np("letter", MANY, "long", plural=True)),
     "He sent her aunt many long letters.", "Er hat ihrer Tante viele lange Briefe geschickt."),
    (STATEMENT, say(np("farmer"), "suchen", object=owned("horse", np("neighbour", MY), "white")),
     "The farmer looks for my neighbour's white horse.", "Der Bauer sucht das weiße Pferd meines Nachbarn."),
    (STATEMENT, say(PETER, "reparieren", object=owned("bicycle", ANNA, "new")),
     "Peter repairs Anna's new bicycle.", "Peter repariert Annas neues Fahrrad."),
    # Pronouns and the middle field
    (STATEMENT, say(np("man"), "geben", "past", recipient=I, object=np("book")),
     "The man gave me the book.", "Der Mann hat mir das Buch gegeben."),
    (STATEMENT, say(np("man"), "geben", "past", recipient=I, object=np("ring"), time=YESTERDAY, time_first=True),
     "Yesterday the man gave me the ring.", "Gestern hat mir der Mann den Ring gegeben."),
    (STATEMENT, say(SHE, "abholen", "progressive", object=HE), "She is picking him up.", "Sie holt ihn ab."),
    (STATEMENT, say(SHE, "abholen", "progressive", object=np("son", HER)),
     "She is picking up her son.", "Sie holt ihren Sohn ab."),
    (STATEMENT, say(np("doctor"), "erklären", recipient=WE, object=np("problem")),
     "The doctor explains the problem to us.", "Der Arzt erklärt uns das Problem."),
    (STATEMENT, say(I, "warten", "past", object=np("bus")), "I waited for the bus.", "Ich habe auf den Bus gewartet."),
    (STATEMENT, say(WE, "essen", "past", object=np("soup"), place=GARDEN, time=when("on Monday")),
     "We ate the soup in the garden on Monday.", "Wir haben am Montag die Suppe im Garten gegessen."),
    (STATEMENT, say(WE, "essen", "past", object=np("apple", A), place=GARDEN, time=when("on Monday")),
     "We ate an apple in the garden on Monday.", "Wir haben am Montag im Garten einen Apfel gegessen."),
    (STATEMENT, say(np("film"), "anfangen", time=phrase("at half_past three", "um halb vier")),
     "The film begins at half past three.", "Der Film fängt um halb vier an."),
    (STATEMENT, say(I, "lesen", object=np("book", NO_ARTICLE, plural=True), gladly=True),
     "I like to read books.", "Ich lese gern Bücher."),
    (STATEMENT, say(np("baker"), "gehen", "progressive", place=Place("to", "zu", "dat", np("station"))),
     "The baker is going to the station.", "Der Bäcker geht zum Bahnhof."),
    # Negation
    (STATEMENT, say(HE, "haben", negated=True, object=np("dog", A)), "He does not have a dog.", "Er hat keinen Hund."),
    (STATEMENT, say(WE, "trinken", negated=True, object=np("coffee", NO_ARTICLE)),
     "We do not drink coffee.", "Wir trinken keinen Kaffee."),
    (STATEMENT, say(I, "essen", "past", negated=True, object=np("apple"), time=when("yesterday")),
     "I did not eat the apple yesterday.", "Ich habe den Apfel gestern nicht gegessen."),
    (STATEMENT, say(ANNA, "wohnen", negated=True, place=Place("in", "in", "dat", BERLIN)),
     "Anna does not live in Berlin.", "Anna wohnt nicht in Berlin."),
    (STATEMENT, say(PETER, "zumachen", modal=modal("can"), negated=True, object=np("suitcase")),
     "Peter cannot close the suitcase.", "Peter kann den Koffer nicht zumachen."),
    (STATEMENT, say(THEY, "ausschalten", "perfect", negated=True, object=np("lamp"), time=phrases("yet")[0]),
     "They have not turned off the lamp yet.", "Sie haben die Lampe noch nicht ausgeschaltet."),
    (STATEMENT, say(SHE, "besuchen", object=np("uncle", HER), frequency=when("never")),
     "She never visits her uncle.", "Sie besucht ihren Onkel nie."),
    (STATEMENT, Clause(ANNA, BE, predicate=NounPhrase(noun("doctor").woman(), A), negated=True),
     "Anna is not a doctor.", "Anna ist keine Ärztin."),
    # Being
    (STATEMENT, Clause(np("sister", MY), BE, predicate=NounPhrase(noun("doctor").woman(), A)),
     "My sister is a doctor.", "Meine Schwester ist Ärztin."),
    (STATEMENT, Clause(np("dog"), BE, predicate=Comparison(adjective("big"), False, np("cat"))),
     "The dog is bigger than the cat.", "Der Hund ist größer als die Katze."),
    (STATEMENT, Clause(PETER, BE, predicate=Comparison(adjective("old"), True, np("brother", YOUR))),
     "Peter is as old as your brother.", "Peter ist so alt wie dein Bruder."),
    (STATEMENT, Clause(np("house"), BE, "past", predicate=(adjective("old"), adjective("beautiful"))),
     "The house was old but beautiful.", "Das Haus war alt, aber schön."),
    (STATEMENT, Clause(THERE, THERE_IS, object=np("tree", MANY, plural=True), place=GARDEN),
     "There are many trees in the garden.", "Im Garten gibt es viele Bäume."),
    # Questions and commands
    (QUESTION, say(YOU, "helfen", modal=modal("can"), object=I), "Can you help me?", "Kannst du mir helfen?"),
    (QUESTION, say(HE, "anrufen", "past", object=np("mother", HIS)),
     "Did he call his mother?", "Hat er seine Mutter angerufen?"),
    (QUESTION, say(np("man"), "sehen", "past", object=WHO), "Who did the man see?", "Wen hat der Mann gesehen?"),
    (QUESTION, say(SHE, "danken", "past", object=WHO), "Who did she thank?", "Wem hat sie gedankt?"),
    (QUESTION, say(SHE, "warten", "progressive", object=WHO), "Who is she waiting for?", "Auf wen wartet sie?"),
    (QUESTION, say(WHO, "wegwerfen", "past", object=np("ball", MY)),
     "Who threw away my ball?", "Wer hat meinen Ball weggeworfen?"),
    (QUESTION, say(YOU, "kaufen", "past", object=WHAT), "What did you buy?", "Was hast du gekauft?"),
    (QUESTION, say(YOU, "essen", "past", object=np("egg", HOW_MANY, plural=True)),
     "How many eggs did you eat?", "Wie viele Eier hast du gegessen?"),
    (QUESTION, say(YOU, "gehen", "progressive", place=question("goal")), "Where are you going?", "Wohin gehst du?"),
    (QUESTION, Clause(np("bridge"), BE, predicate=Degree(adjective("long"))),
     "How long is the bridge?", "Wie lang ist die Brücke?"),
    (COMMAND, say(YOU, "einschalten", object=np("radio")), "Turn on the radio!", "Schalte das Radio ein!"),
    (COMMAND, say(YOU, "vergessen", negated=True, object=np("money")),
     "Do not forget the money!", "Vergiss das Geld nicht!"),
    (QUESTION, Clause(np("man", THE, "old"), lexicon.CLAUSE_VERBS["believe"], negated=True,
                      reason=question("reason"), complement=BOUGHT),
     "Why does the old man not believe that the children bought the red car yesterday?",
     "Warum glaubt der alte Mann nicht, dass die Kinder gestern das rote Auto gekauft haben?"),
    # Relative clauses
    (STATEMENT, say(dataclasses.replace(np("dog"), relative=SAW_DOG), "schlafen", "progressive"),
     "The dog that the man saw is sleeping.", "Der Hund, den der Mann gesehen hat, schläft."),
    (STATEMENT, say(I, "treffen", "past", object=dataclasses.replace(
        np("woman"), relative=say(Gap(np("woman")), "wohnen", place=Place("in", "in", "dat", BERLIN)))),
     "I met the woman who lives in Berlin.", "Ich habe die Frau getroffen, die in Berlin wohnt."),
    (STATEMENT, say(dataclasses.replace(CHILDREN, relative=say(ANNA, "helfen", object=Gap(CHILDREN))), "lachen"),
     "The children that Anna helps laugh.", "Die Kinder, denen Anna hilft, lachen."),
]
# fmt: on


@pytest.mark.parametrize(("mood", "clause", "source", "target"), KNOWN, ids=[row[2] for row in KNOWN])
def test_known_sentences(mood: str, clause: Clause, source: str, target: str) -> None:
    pair = render(Sentence(clause, mood))  # type: ignore[arg-type]
    assert (pair.source, pair.target) == (source, target)


AT_HOME = when("at home")
JOINED = [
    (
        Sentence(
            say(ANNA, "bleiben", "progressive", place=AT_HOME),
            linked=Linked("because", Clause(SHE, BE, predicate=adjective("ill"))),
        ),
        "Anna is staying at home because she is ill.",
        "Anna bleibt zu Hause, weil sie krank ist.",
    ),
    (
        Sentence(say(WE, "bleiben", "future", place=AT_HOME), linked=Linked("if", Clause(IT, RAIN)), linked_first=True),
        "If it rains, we will stay at home.",
        "Wenn es regnet, werden wir zu Hause bleiben.",
    ),
    (
        Sentence(
            say(np("baby"), "schlafen", "past progressive"),
            linked=Linked("when", say(HE, "zurückkommen", "past")),
        ),
        "The baby was sleeping when he came back.",
        "Das Baby hat geschlafen, als er zurückgekommen ist.",
    ),
    (
        Sentence(
            Clause(
                I,
                lexicon.CLAUSE_VERBS["know"],
                negated=True,
                complement=Linked("whether", say(np("bus"), "abfahren", "future")),
            )
        ),
        "I do not know whether the bus will leave.",
        "Ich weiß nicht, ob der Bus abfahren wird.",
    ),
    (
        Sentence(
            Clause(
                SHE,
                lexicon.CLAUSE_VERBS["say"],
                "past",
                complement=Linked("that", say(HE, "aufmachen", modal=modal("had to"), object=np("box"))),
            )
        ),
        "She said that he had to open the box.",
        "Sie hat gesagt, dass er die Kiste aufmachen musste.",
    ),
    (
        Sentence(
            Clause(
                PETER, lexicon.CLAUSE_VERBS["ask"], complement=Linked("", say(YOU, "wohnen", place=question("place")))
            )
        ),
        "Peter asks where you live.",
        "Peter fragt, wo du wohnst.",
    ),
    (
        Sentence(
            Clause(
                I, lexicon.CLAUSE_VERBS["try"], "past", complement=Linked("to", say(I, "aufmachen", object=np("door")))
            )
        ),
        "I tried to open the door.",
        "Ich habe versucht, die Tür aufzumachen.",
    ),
    (
        Sentence(
            Clause(
                SHE, lexicon.CLAUSE_VERBS["forget"], complement=Linked("to", say(SHE, "waschen", object=np("apple")))
            )
        ),
        "She forgets to wash the apple.",
        "Sie vergisst, den Apfel zu waschen.",
    ),
    (
        Sentence(
            say(Both(ANNA, PETER), "mögen", object=np("tea", NO_ARTICLE)),
            second=("but", say(I, "mögen", object=np("coffee", NO_ARTICLE))),
        ),
        "Anna and Peter like tea, but I like coffee.",
        "Anna und Peter mögen Tee, aber ich mag Kaffee.",
    ),
]


@pytest.mark.parametrize(("sentence", "source", "target"), JOINED, ids=[row[1] for row in JOINED])
def test_known_sentences_of_two_clauses(sentence: Sentence, source: str, target: str) -> None:
    pair = render(sentence)
    assert (pair.source, pair.target) == (source, target)


def test_alignment_of_a_separable_verb() -> None:
    pair = render(Sentence(say(ANNA, "aufmachen", "past", object=np("door"))))
    # Anna opened the door .  /  Anna hat die Tür aufgemacht .
    assert pair.alignment == {(0, 0), (1, 1), (1, 4), (2, 2), (3, 3), (4, 5)}


def test_alignment_of_kein_and_of_a_contraction() -> None:
    pair = render(Sentence(say(HE, "kaufen", negated=True, object=np("hat", A))))
    # He does not buy a hat .  /  Er kauft keinen Hut .
    assert pair.alignment == {(0, 0), (1, 1), (3, 1), (2, 2), (4, 2), (5, 3), (6, 4)}
    pair = render(Sentence(say(HE, "schlafen", place=GARDEN)))
    # He sleeps in the garden .  /  Er schläft im Garten .
    assert pair.alignment == {(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (5, 4)}
