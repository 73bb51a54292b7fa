import numpy as np
import pytest
from toy import KEY

from shoal.kernels.swarm import FSI, PSO, Flock, SwarmRule, advance, descend, squares

WORDS = tuple(np.uint64(word) for word in KEY.fold("swarm").words)
HUGE = float(np.finfo(np.float64).max)


def fsi(w1=0.0, w2=1.0, w3=0.0, patience=5, forgives=False, largest=HUGE):
    return SwarmRule(FSI, w1, w2, w3, patience, forgives, largest)


def flock(points, losses, step=1.0, velocities=0.0, candidates=None):
    points = np.array(points, np.float64)
    losses = np.array(losses, np.float64)
    return Flock(
        points,
        np.zeros_like(points) + velocities,
        points.copy() if candidates is None else np.array(candidates, np.float64),
        losses,
        np.full(len(losses), step),
        np.zeros(len(losses), np.int64),
    )


def drawn(epoch, which, shape):
    """The numbers of an epoch as NumPy's own generator gives them."""
    size = int(np.prod(shape))
    blocks = -(-size // 4)
    stream = KEY.fold("swarm", epoch // 1024).numpy()
    stream.bit_generator.advance(blocks * (2 * (epoch % 1024) + which))
    return stream.random(size).reshape(shape)


def move(swarm, rule, epoch=1, new=None):
    known = swarm.losses.copy()
    advance(rule, WORDS, epoch, swarm, known, known if new is None else np.array(new, np.float64))
    return swarm


@pytest.mark.parametrize("epoch", [0, 1, 700, 1023, 1024, 5000])
@pytest.mark.parametrize("particles", [2, 3, 5, 8])
def test_an_epoch_draws_its_own_numbers_whatever_was_drawn_before(epoch, particles):
    points = np.zeros((3, 2, particles))
    swarm = move(flock(points, np.ones((2, particles)), step=0.5), fsi(w2=0.0, w3=1.0), epoch)
    assert np.array_equal(swarm.velocities, 0.5 * (2 * drawn(epoch, 1, points.shape) - 1))
    assert np.array_equal(swarm.candidates, swarm.velocities)


def test_the_motion_of_fsi_by_hand():
    """Equation 4, where the second particle is the best."""
    points, speed = [[[1.0, 5.0]], [[-2.0, 3.0]]], np.array([[[0.3, -0.7]], [[0.0, 2.0]]])
    swarm = move(flock(points, [[9.0, 4.0]], step=0.25, velocities=speed), fsi(0.2, 0.5, 0.3), epoch=0)
    r1, r2 = drawn(0, 0, (2, 1, 2)), drawn(0, 1, (2, 1, 2))
    best = np.array([[[5.0]], [[3.0]]])
    expected = 0.25 * (0.2 * speed + 0.5 * r1 * (best - points) + 0.3 * (2 * r2 - 1))
    np.testing.assert_allclose(swarm.velocities, expected, rtol=1e-15)
    np.testing.assert_allclose(swarm.candidates, points + expected, rtol=1e-15)


def test_the_motion_of_pso_by_hand():
    """The bests are at 1 and 5, the particles themselves at 2 and 4."""
    bests, places, speed = [[[1.0, 5.0]]], [[[2.0, 4.0]]], np.array([[[0.3, -0.7]]])
    swarm = flock(bests, [[9.0, 4.0]], velocities=speed, candidates=places)
    move(swarm, SwarmRule(PSO, 0.7, 1.5, 1.3, 1, False, 1.0), epoch=6, new=[[10.0, 4.0]])
    r1, r2 = drawn(6, 0, (1, 1, 2)), drawn(6, 1, (1, 1, 2))
    expected = 0.7 * speed + 1.5 * r1 * (np.array(bests) - places) + 1.3 * r2 * (5.0 - np.array(places))
    np.testing.assert_allclose(swarm.velocities, expected, rtol=1e-15)
    np.testing.assert_allclose(swarm.candidates, places + expected, rtol=1e-15)
    assert np.array_equal(swarm.particles, bests)
    assert swarm.step_sizes.tolist() == [1.0]


def test_only_a_smaller_loss_moves_a_particle():
    swarm = flock(
        [[[1.0, 2.0, 3.0, 4.0]]], [[5.0, 5.0, 5.0, np.inf]], candidates=[[[10.0, 20.0, 30.0, 40.0]]]
    )
    move(swarm, fsi(), new=[[4.9, 5.0, np.inf, 7.0]])
    assert swarm.particles.tolist() == [[[10.0, 2.0, 3.0, 40.0]]]
    assert swarm.losses.tolist() == [[4.9, 5.0, 5.0, 7.0]]


def paced(script, **rule):
    """The step sizes after epochs that succeed or fail as the script says; it begins with 1."""
    swarm, found = flock([[[0.0, 1.0]]], [[100.0, 200.0]]), []
    for epoch, success in enumerate(script, 1):
        best = swarm.losses.min()
        move(swarm, fsi(**rule), epoch, [[best - 1 if success == "+" else best, 200.0]])
        found.append(float(swarm.step_sizes[0]))
    return found


def test_the_step_size_follows_its_rule():
    """Failures are counted in all; a success doubles and does not set them back."""
    assert paced("--+-+--", patience=3) == [1, 1, 2, 1, 2, 2, 2]
    assert paced("--+-+--", patience=3, forgives=True) == [1, 1, 2, 2, 4, 4, 4]
    assert paced("---", patience=1) == [0.5, 0.25, 0.125]
    assert paced("+++", largest=3.0) == [2, 3, 3]


def test_the_first_losses_change_no_step_size():
    swarm = flock([[[0.0, 1.0]]], [[np.inf, np.inf]])
    move(swarm, fsi(), 0, [[3.0, 4.0]])
    assert swarm.step_sizes.tolist() == [1.0]
    assert swarm.losses.tolist() == [[3.0, 4.0]]


def test_problems_have_step_sizes_and_bests_of_their_own():
    swarm = flock([[[0.0, 4.0], [8.0, 9.0]]], [[1.0, 2.0], [2.0, 1.0]])
    move(swarm, fsi(patience=1), new=[[0.5, 2.0], [2.0, 1.0]])
    assert swarm.step_sizes.tolist() == [2.0, 0.5]
    assert swarm.velocities[0, 0, 0] == swarm.velocities[0, 1, 1] == 0
    assert swarm.velocities[0, 0, 1] < 0 < swarm.velocities[0, 1, 0]


def test_velocities_and_step_sizes_stay_numbers():
    swarm = flock([[[-1e308, 1e308]]], [[2.0, 1.0]], step=HUGE, velocities=1e300)
    for epoch in range(1, 4):
        move(swarm, fsi(0.5, 0.5), epoch, swarm.losses - 1)
        assert np.isfinite(swarm.velocities).all()
        assert swarm.step_sizes.tolist() == [HUGE]


def test_a_classical_particle_beyond_all_numbers_comes_back():
    swarm = flock([[[1.0, 2.0]]], [[5.0, 6.0]], velocities=[[[1e308, 1.0]]], candidates=[[[1e308, 3.0]]])
    move(swarm, SwarmRule(PSO, 1.0, 0.0, 0.0, 1, False, 1.0))
    assert swarm.candidates.tolist() == [[[1.0, 4.0]]]


def triangles(clients, dimension):
    draw = KEY.fold("triangles").numpy()
    return np.triu(draw.normal(size=(clients, dimension + 1, dimension + 1)))


@pytest.mark.parametrize("dimension", [1, 2, 4, 7, 14])
def test_squares_are_squared_lengths(dimension):
    (factor,) = triangles(1, dimension)
    points = KEY.fold("points").numpy().normal(size=(dimension, 9))
    expected = ((factor[:, :-1] @ points - factor[:, -1:]) ** 2).sum(0)
    np.testing.assert_allclose(squares(factor, points), expected, rtol=1e-13)
    alone = [squares(factor, points[:, s : s + 1].copy())[0] for s in range(9)]
    assert np.array_equal(squares(factor, points), alone)


def test_squares_of_enormous_points_are_infinite():
    (factor,) = triangles(1, 3)
    found = squares(factor, np.full((3, 4), 10.0) ** [60, 100, 160, 200])
    assert np.isfinite(found).tolist() == [True, True, False, False]
    assert not np.isnan(found).any()


@pytest.mark.parametrize("rule", [fsi(), fsi(0.2, 0.4, 0.4), SwarmRule(PSO, 0.7, 1.5, 1.5, 1, False, 1.0)])
def test_a_whole_run_is_its_epochs(rule):
    factors = triangles(3, 5)
    points = KEY.fold("start").numpy().random((5, 1, 7))
    at_once, stepwise = (flock(points, np.full((1, 7), np.inf)) for _ in range(2))
    strange = np.zeros(3, np.bool_)
    descend(rule, WORDS, 0, 1500, at_once, factors, strange)
    for epoch in range(1500):
        total = np.zeros(7)
        for factor in factors:
            total += squares(factor, stepwise.candidates[:, 0].copy())
        advance(rule, WORDS, epoch, stepwise, stepwise.losses, total[None])
    assert all(np.array_equal(one, two) for one, two in zip(at_once, stepwise))
    assert not strange.any()
