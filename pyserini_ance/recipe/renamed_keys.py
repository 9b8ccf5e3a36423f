"""Keys, values and kinds of earlier versions, and the messages that say what each is called now."""

from collections.abc import Collection
from typing import Any, NamedTuple


class RenamedKey(NamedTuple):
    """The key `old` of settings with the field `field` (and the `kind`, if given), which `now` replaces."""

    old: str
    now: str
    field: str
    kind: str | None = None


def _same(old: str, new: str) -> RenamedKey:
    return RenamedKey(old, f"`{new}`", new)


KEYS = (
    _same("per_query", "num_negatives"),
    _same("depth", "top_k"),
    _same("guards", "filters"),
    _same("sample", "sampling_strategy"),
    _same("spare", "oversample"),
    _same("when_short", "on_shortage"),
    _same("no_relevant", "if_no_positive"),
    RenamedKey("file", "a key of kind `ranking`", "kind", "bm25"),
    _same("above", "max_score"),
    RenamedKey("ratio", "`margin`, which is 1 - ratio", "margin", "relative_margin"),
    _same("pool", "in_batch_negatives"),
    _same("hardest", "num_hardest"),
    _same("run", "mode"),
    _same("chunks", "query_chunks"),
    _same("first_with", "initial_model"),
    _same("in_a_row", "repeats_per_query"),
    _same("train", "trainable"),
    _same("start", "init_from"),
    _same("changes", "allow_changes"),
    _same("l2", "normalize"),
    RenamedKey("schedule_steps", "`total_steps` of `lr_schedule`", "lr_schedule"),
    RenamedKey("schedule_cycle_steps", "`cycle_steps` of `lr_schedule`", "lr_schedule"),
    RenamedKey("schedule_offset_steps", "`offset_steps` of `lr_schedule`", "lr_schedule"),
    RenamedKey("warmup_steps", "`warmup_steps` of the stage's `lr_schedule`", "learning_rate"),
    RenamedKey("decay", "`kind` of the stage's `lr_schedule`", "learning_rate"),
    RenamedKey("every_stage", "`stage_defaults`", "stages"),
    _same("keep", "retention"),
    _same("checkpoints", "save_total_limit"),
    _same("tables", "keep_negatives"),
    _same("start", "launch"),
    _same("wait_seconds", "refresher_timeout_seconds"),
    _same("leave_after_seconds", "trainer_timeout_seconds"),
    _same("test", "final_evaluation"),
    _same("about", "description"),
    _same("mixing", "sampling"),
    _same("empty_passages", "pad_passages"),
)

# By current key: the values of earlier versions, and their current names.
VALUES: dict[str, dict[str, str]] = {
    "sampling_strategy": {"uniform": "random", "hardest": "top"},
    "on_shortage": {"random": "fill_random"},
    "in_batch_negatives": {"own": "false", "step": "true"},
    "mode": {"inline": "sync", "background": "async"},
    "adopt": {"ready": "when_ready"},
    "initial_model": {"start": "current", "previous": "previous_stage"},
    "trainable": {"queries": "query_tower"},
    "allow_changes": {"l2": "normalize"},
    "launch": {"child": "subprocess", "elsewhere": "external"},
    "sampling": {"even": "equal", "concatenated": "proportional"},
    "measure": {"sum_RR": "adore_rr"},
    "special_tokens": {"passage": "per_passage", "document": "per_document"},
    "pad_passages": {"drop": "false", "index": "true"},
}

KINDS = {
    ("negatives", "run"): "`bm25` (or `ranking`, with a `file`)",
    ("filters", "rank_floor"): "`range_min`",
    ("filters", "margin"): "`absolute_margin`",
    ("filters", "ratio"): "`relative_margin`, with `margin: 1 - ratio`",
    ("filters", "cross_encoder"): "`teacher`, with `teacher: {kind: cross_encoder, model: NAME}`; its "
    "`max_score` is a logit, for a probability p log(p / (1 - p))",
}


def renamed_key(key: Any, value: Any, fields: Collection[str], kind: str | None) -> str | None:
    """The message for an unknown key of settings with these `fields` and this `kind`; None if the key never
    existed."""
    for row in KEYS:
        if row.old == key and row.field in fields and row.kind in (None, kind):
            if new := _new_value(row.field, value):
                return f"`{key}: {value}` is now `{row.field}: {new}`"
            return f"`{key}` is now {row.now}"
    return None


def renamed_value(key: str, value: Any) -> str | None:
    """The message for a value of a current key; None if the value has not been renamed."""
    for one in value if isinstance(value, list | tuple) else [value]:
        if new := _new_value(key, one):
            return f"`{key}: {one}` is now `{key}: {new}`"
    return None


def renamed_kind(package: str, kind: str) -> str | None:
    """The message for a kind of an earlier version; None if it has not been renamed."""
    now = KINDS.get((package, kind))
    return now and f"kind `{kind}` is now {now}"


def _new_value(key: str, value: Any) -> str | None:
    return VALUES.get(key, {}).get(value) if isinstance(value, str) else None
