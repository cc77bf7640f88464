"""Made-up texts about people, with the answers to questions and the names in them, for tasks of the encoder."""

from __future__ import annotations

import json
import random
from pathlib import Path

FIRST = [
    "Anna", "Bela", "Carl", "Dora", "Emil", "Frida", "Gino", "Hanna", "Ivan", "Jana", "Karin", "Luca", "Mona",
    "Nils", "Olga", "Petra", "Rita", "Sven", "Tina", "Uwe",
]  # fmt: skip
LAST = [
    "Berg", "Costa", "Dahl", "Eriksen", "Fuchs", "Greco", "Horvat", "Ibsen", "Jensen", "Kowal", "Lang", "Moreau",
    "Novak", "Olsen", "Petit", "Rossi",
]  # fmt: skip
TOWNS = [
    "Aachen", "Brno", "Cork", "Delft", "Essen", "Faro", "Ghent", "Graz", "Kiel", "Lyon", "Malmo", "Nantes", "Oslo",
    "Porto", "Riga", "Sofia", "Turin", "Varna",
]  # fmt: skip
JOBS = [
    "baker", "chemist", "dentist", "farmer", "gardener", "lawyer", "nurse", "painter", "pilot", "teacher", "tailor",
    "writer",
]  # fmt: skip
NUMBERS = ["two", "three", "four", "five", "six", "seven"]
Answers = dict[str, str]  # question -> answer; empty where the passage has none


def biography(name: tuple[str, str], draw: random.Random) -> tuple[str, Answers]:
    """Three or four sentences about a person: the first two always, then one or two of three."""
    first, last = name
    born, moved, died = draw.sample(TOWNS, 3)
    year, job, children = draw.randint(1900, 1960), draw.choice(JOBS), draw.choice(NUMBERS)
    spouse = draw.choice([other for other in FIRST if other != first])
    end = str(year + draw.randint(30, 60))
    optional = [
        (f"{first} died in {died} in {end}.", {f"When did {first} die?": end, f"Where did {first} die?": died}),
        (f"{first} has {children} children.", {f"How many children does {first} have?": children}),
        (f"{first} married {spouse}.", {f"Whom did {first} marry?": spouse}),
    ]
    chosen = draw.sample(range(3), draw.randint(1, 2))
    text = f"{first} {last} was born in {born} in {year}. After school {first} became a {job} and moved to {moved}."
    answers = {f"Where was {first} born?": born, f"When was {first} born?": str(year)}
    answers |= {f"What did {first} become?": job, f"Where did {first} move?": moved}
    for number, (sentence, facts) in enumerate(optional):
        text += f" {sentence}" if number in chosen else ""
        answers |= {question: answer if number in chosen else "" for question, answer in facts.items()}
    return text, answers


def squad(passages: int, people: int, seed: int) -> list[dict[str, object]]:
    """Passages about so many people each, with four questions, as paragraphs of a SQuAD 2.0 file."""
    draw, paragraphs = random.Random(seed), []
    for number in range(passages):
        names = zip(draw.sample(FIRST, people), draw.choices(LAST, k=people), strict=True)
        parts = [biography(name, draw) for name in names]
        context, start, qas = " ".join(text for text, _ in parts), 0, []
        asked = draw.choices(range(people), k=4)
        for index, (text, answers) in enumerate(parts):
            for question, answer in draw.sample(sorted(answers.items()), asked.count(index)):
                spans = [{"text": answer, "answer_start": start + span_of(text, answer)}] if answer else []
                identifier = f"{number}-{len(qas)}"
                qas.append({"id": identifier, "question": question, "answers": spans, "is_impossible": not answer})
            start += len(text) + 1
        paragraphs.append({"context": context, "qas": qas})
    return paragraphs


def span_of(text: str, answer: str) -> int:
    """Where an answer stands as a word: a name may be a part of another word."""
    return f" {text.replace('.', ' ')}".index(f" {answer} ")


def write_squad(paragraphs: list[dict[str, object]], path: Path) -> Path:
    tree = {"version": "v2.0", "data": [{"title": "made up", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


def tagged_sentence(names: slice, draw: random.Random) -> list[tuple[str, str]]:
    """A sentence with one or two people and a town, as words and IOB2 tags; `names` selects those that may occur."""
    person = [(draw.choice(FIRST[names]), "B-PER"), (draw.choice(LAST[names]), "I-PER")]
    other, town, job = (draw.choice(FIRST[names]), "B-PER"), (draw.choice(TOWNS[names]), "B-LOC"), draw.choice(JOBS)

    def plain(text: str) -> list[tuple[str, str]]:
        return [(word, "O") for word in text.split()]

    return draw.choice(
        [
            [*person, *plain("lives in"), town, *plain(".")],
            [*plain(f"A {job} from"), town, *plain("met"), *person, *plain(".")],
            [*person, *plain("and"), other, *plain("moved to"), town, *plain(".")],
            [*plain("The train to"), town, *plain("was late , said"), other, *plain(f"the {job} .")],
        ]
    )


def write_tagged(sentences: int, names: slice, seed: int, path: Path) -> Path:
    draw = random.Random(seed)
    blocks = ("".join(f"{word}\t{tag}\n" for word, tag in tagged_sentence(names, draw)) for _ in range(sentences))
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path
