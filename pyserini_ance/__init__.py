"""Train dense retrievers with hard negatives that the model itself finds, for search with Pyserini.

Reading path: `recipes/_methods/ance.yaml` -> `trainer/trainer.py` -> `trainer/objective.py`
-> `trainer/handover.py` -> `negatives/ann.py` -> `refresher/refresher.py`.
"""

__version__ = "0.1.0"


def register() -> None:
    """Put our encoder classes into Pyserini's maps, under the name `pyserini_ance`; starts Java if it does not run yet."""
    from pyserini_ance.pyserini_bridge.register import register as register_encoders

    register_encoders()
