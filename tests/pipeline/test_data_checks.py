import pytest

from pyserini_ance.pipeline.data_checks import check_splits, check_template_fields
from pyserini_ance.recipe.load import load


@pytest.mark.parametrize("template", ["{text}", "{title} {text}", "{text} [SEP] {title}", "passage: {text}"])
def test_a_title_may_be_missing_beside_another_field(template):
    check_template_fields("key", template, "document", ["text"])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{title}", "key is '{title}', but a document .* has no field title; fields: text, url"),
        ("{txt} {text}", r"has no field txt \(did you mean 'text'\?\); fields: text, url"),
        ("{titel}", "has no field titel; fields"),
        ("text", "key is 'text', which names no field; write fields in braces, such as '{text}'; fields: "),
    ],
)
def test_a_template_that_would_leave_texts_blank_is_refused(template, message):
    with pytest.raises(ValueError, match=message):
        check_template_fields("key", template, "document", iter(["text", "url"]))


def test_a_default_split_that_a_file_replaces_is_named_with_the_cure():
    recipe = load("demo/rand-batch", "data={kind: beir, folder: set, splits: {test: qrels/dev.tsv}}").recipe
    with pytest.raises(ValueError, match="train_split names 'train'") as error:
        check_splits(recipe, recipe.data.split_names)
    assert str(error.value).endswith(
        "(data.splits in a file replaces the default splits train, dev, test: write out "
        "train: qrels/train.tsv there, too)"
    )
