import numpy as np
import pytest
from helpers.stages import RANDOM, make_stage
from scipy import stats

from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.vectors.correction import PENALTIES, Correction, agreement, token_means

RNG = np.random.default_rng(1)


def drifted(rows: int, size: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Vectors before and after a linear change, with a bias, and noise."""
    rng = np.random.default_rng(seed)
    old = rng.normal(size=(rows, size)) * np.linspace(0.1, 2, size) + 0.3
    matrix = np.eye(size) + 0.3 * np.random.default_rng(9).normal(size=(size, size))
    new = old @ matrix + np.linspace(-1, 1, size) + noise * rng.normal(size=(rows, size))
    return old.astype(np.float32), new.astype(np.float32)


def test_it_is_the_least_squares_of_rows_that_stand_for_the_penalty():
    """A penalty is `size` more rows, of its root, that are to stay as they are; all penalties are tried by
    generalised cross-validation with the hat matrix itself."""
    old, new = drifted(40, 12, noise=0.5)
    x, y = old - old.mean(0, np.float64), new - old - (new - old).mean(0, np.float64)
    risks, changes = [], []
    for penalty in PENALTIES * np.linalg.eigvalsh(x.T @ x).mean():
        rows = np.concatenate([x, np.sqrt(penalty) * np.eye(12)])
        changes.append(np.linalg.lstsq(rows, np.concatenate([y, np.zeros((12, 12))]), rcond=None)[0])
        hat = x @ np.linalg.inv(x.T @ x + penalty * np.eye(12)) @ x.T
        risks.append(np.square(y - x @ changes[-1]).sum() / (40 - 1 - np.trace(hat)) ** 2)
    best = int(np.argmin(risks))
    assert 0 < best < len(PENALTIES) - 1
    found = Correction.fit(old, new, normalizes=False)
    assert (found.matrix.dtype, found.bias.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(found.matrix, np.eye(12) + changes[best], atol=1e-5)
    expected = new.mean(0) + (old - old.mean(0)) @ (np.eye(12) + changes[best])
    np.testing.assert_allclose(found(old), expected, atol=1e-4)
    unit = Correction.fit(old, new, normalizes=True)(old)
    np.testing.assert_allclose(unit, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-4)


def test_other_numbers_of_a_text_count_as_much_as_its_old_vector():
    """They are scaled to its variance, and what they add to the new vector is not penalised less."""
    old, new = drifted(60, 8, noise=0.1)
    others = RNG.normal(size=(60, 5)).astype(np.float32) @ RNG.normal(size=(5, 5)).astype(np.float32)
    new[:, :5] += others
    ratio = np.sqrt(old.var(0).mean() / others.var(0).mean())
    scaled = [np.concatenate([old, factor * others], axis=1) for factor in (1, 100, ratio)]
    found = [Correction.fit(inputs, new, normalizes=False) for inputs in scaled]
    np.testing.assert_allclose(found[0](scaled[0]), found[1](scaled[1]), atol=1e-3)
    x = scaled[2] - scaled[2].mean(0, np.float64)
    y = new - old - (new - old).mean(0, np.float64)
    fits = []
    for penalty in PENALTIES * np.linalg.eigvalsh(x.T @ x).mean():
        rows = np.concatenate([x, np.sqrt(penalty) * np.eye(13)])
        change = np.linalg.lstsq(rows, np.concatenate([y, np.zeros((13, 8))]), rcond=None)[0]
        fits.append(np.abs(found[2].matrix - np.eye(13, 8) - change).max())
    assert min(fits) < 1e-4
    alone = Correction.fit(old, new, normalizes=False)(old)
    assert np.square(found[0](scaled[0]) - new).mean() < np.square(alone - new).mean() / 4


def test_token_means_are_those_of_a_slow_loop(small_recipe):
    encoder = initial_encoder(small_recipe({"a": make_stage(RANDOM)}).encoder, 0)
    lists = [[7, 8, 9], [], list(range(10, 300))]
    tokens = TokenStore.of_lists(lists, Specials((2,), (3,), 0))
    embeddings = encoder.towers.documents.transformer.embeddings.word_embeddings.weight.detach().numpy()
    length = encoder.length_tokens("document")
    texts = [[2, *ids[: length - 2], 3] for ids in lists]
    rows = np.array([2, 0, 1])
    expected = np.stack([embeddings[texts[row]].mean(0) for row in rows])
    np.testing.assert_allclose(token_means(encoder, tokens, rows), expected, rtol=1e-4, atol=1e-6)


def test_a_linear_change_is_recovered_on_rows_that_were_not_seen():
    old, new = drifted(300, 16, noise=0.0)
    found = Correction.fit(old[:200], new[:200], normalizes=False)(old[200:])
    assert np.abs(found - new[200:]).max() < 0.01 and found.dtype == np.float32


def test_fewer_rows_than_numbers_in_a_vector_do_not_fit_noise():
    """Every row can then be met exactly, which says nothing about other rows."""
    old, _ = drifted(400, 64, noise=0.0)
    new = old + RNG.normal(size=old.shape).astype(np.float32)
    error = np.square(Correction.fit(old[:50], new[:50], normalizes=False)(old[50:]) - new[50:]).mean()
    assert error < 1.2
    for rows in (1, 2, 5):
        assert np.isfinite(Correction.fit(old[:rows], new[:rows], normalizes=False)(old)).all()


def test_agreement_is_that_of_a_slow_loop():
    queries, exact = RNG.normal(size=(60, 6)), RNG.normal(size=(80, 6))
    other = exact + 0.3 * RNG.normal(size=(80, 6))
    recalls, correlations = [], []
    for query in queries:
        tops = [set(np.argsort(-(vectors @ query))[:7].tolist()) for vectors in (exact, other)]
        recalls.append(len(tops[0] & tops[1]) / 7)
        correlations.append(stats.spearmanr(exact @ query, other @ query).statistic)
    assert agreement(queries, exact, other, 7) == pytest.approx((np.mean(recalls), np.mean(correlations)))
    assert agreement(queries, exact, exact, 7) == pytest.approx((1.0, 1.0))
    assert agreement(queries, exact[:1], other[:1], 1) == (1.0, 0.0)
