"""A small corpus of its own: grammar-like sentences in three scripts, enough repetition to learn merges from."""

import itertools

WHO = ["The dog", "A small cat", "Der Hund", "Die Katze", "Un chien", "L'homme"]
DOES = ["doesn't see", "sees", "sieht", "mag", "qu'il voit", "aime"]
WHAT = ["the house.", "14 trees!", "das Haus, bald;", "l'été...", "(nothing)", '"quotes" — naïve?']
CHINESE = ["我爱中国。", "他不喜欢我们的房子。", "我们喜欢中国人。", "你是谁？"]


def sentences() -> list[str]:
    western = [" ".join(words) for words in itertools.product(WHO, DOES, WHAT)]
    return western + CHINESE * 10
