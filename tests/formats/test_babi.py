"""bAbI stories are read as they are published: numbered lines, questions with answers, stories one after another."""

from heedful.data.labeled_corpus import LabeledExample, read_labeled
from heedful.formats.line_files import DroppedLines

STORY = """1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Mary got the football there.
5 Where is the football? \tbathroom\t4 1
1 Bill is in the park.
2 Is Bill in the office? \tno\t1
"""


def test_a_question_is_asked_about_all_sentences_before_it(tmp_path):
    path = tmp_path / "qa.txt"
    path.write_text(STORY)
    moved = "Mary moved to the bathroom. John went to the hallway."
    assert read_labeled(path) == [
        LabeledExample("bathroom", moved, "Where is Mary?"),
        LabeledExample("bathroom", f"{moved} Mary got the football there.", "Where is the football?"),
        LabeledExample("no", "Bill is in the park.", "Is Bill in the office?"),
    ]


def test_lines_that_are_no_story_are_dropped_and_reported(tmp_path):
    path, dropped = tmp_path / "qa.txt", DroppedLines()
    path.write_text(STORY + "no number\n3 Where? \t\t1\n")
    assert len(read_labeled(path, dropped)) == 3
    assert dropped.counts() == {"not a numbered line of a bAbI story": 2}
    assert next(iter(dropped.values())).line == 8


def test_a_labeled_file_that_begins_with_a_number_is_no_story(tmp_path):
    path = tmp_path / "labels.tsv"
    path.write_text("1 star\ta bad film\n5 stars\ta good one\n")
    assert [example.label for example in read_labeled(path)] == ["1 star", "5 stars"]
