from contextlib import nullcontext

import pytest

from pyserini_ance.pipeline.data_checks import check_template_fields


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{title} {text}", ""),  # a title may be missing beside another field
        ("passage: {text}", ""),
        ("{title}", "key is '{title}', but a document .* has no field title; fields: text, url"),
        ("{txt} {text}", r"has no field txt \(did you mean 'text'\?\); fields: text, url"),
        ("text", "key is 'text', which names no field; write fields in braces, such as '{text}'; fields: "),
    ],
)
def test_a_template_that_would_leave_texts_blank_is_refused(template, message):
    expected = pytest.raises(ValueError, match=message) if message else nullcontext()
    with expected:
        check_template_fields("key", template, "document", iter(["text", "url"]))
