"""How a worker divides its slots over the partitions: pure, and the same in every client.

The vectors of proto/conformance/share.json hold the copies together. Times are seconds of one clock; 0 is never.
"""

from __future__ import annotations

from collections.abc import Sequence

LOOK_EVERY = 0.25  # for which a partition may wait for a free slot when there are fewer slots than partitions
STAY_LEAST = 0.005  # a slot that finds nothing stays: less would do nothing but move slots
STAY_MOST = 0.025  # more would look away from the others for long
HOT_FOR = 0.25  # a lane whose window was full counts as one that wants more
HOT_ROAMING = 1.0  # the same where slots travel, as it is looked at less often


class Share:
    """One lane as the division sees it."""

    __slots__ = ("filled", "hot", "looked", "opened", "slots", "target", "up", "used", "wanted")

    def __init__(
        self,
        slots: int = 0,
        target: int = 0,
        used: int = 0,
        up: bool = False,
        wanted: bool = False,
        filled: float = 0.0,
        looked: float = 0.0,
        opened: float = 0.0,
    ) -> None:
        self.slots = slots  # its window: how many tasks it may have at once
        self.target = target  # what the window is to become, as soon as others have given up what it lacks
        self.used = used  # tasks that take a slot now
        self.up = up  # a server may give it tasks
        self.wanted = wanted  # its server told of tasks while it had no slot
        self.filled = filled  # when its window was full last
        self.looked = looked  # when slots stood open on it last
        self.opened = opened  # since when they stand open now; 0: none does
        self.hot = False  # it uses all that it has

    def set(self, slots: int, used: int, now: float) -> None:
        """Give it another window."""
        self.slots = slots
        if slots <= used:
            self.opened = 0.0
        elif not self.opened:
            self.opened = now

    def idle_for(self, seconds: float, now: float) -> bool:
        """Report whether slots have stood open in vain for so long."""
        return self.opened > 0 and now - self.opened >= seconds


def stay(total: int, lanes: int) -> float:
    """Return for how long a slot that travels stays where it finds nothing: half of the slots come by everywhere."""
    return min(max(LOOK_EVERY * total / (2 * lanes), STAY_LEAST), STAY_MOST)


def _heat(lanes: Sequence[Share], now: float, roams: bool) -> bool:
    """Find the lanes that want more than they have."""
    for s in lanes:
        if roams:
            s.hot = s.up and now - s.filled < HOT_ROAMING
        else:
            s.hot = s.up and (now - s.filled < HOT_FOR or (s.slots > 0 and s.used >= s.slots))
    return any(s.hot for s in lanes)


def divide(total: int, lanes: Sequence[Share], now: float) -> bool:
    """Set the targets where there is a slot for every lane; report whether some lane wants more than an even share.

    Each gets an even share, unless some lane uses all of its own. Then those share evenly what the others have no use
    for; these keep one slot free, so that no task waits for it.
    """
    if not _heat(lanes, now, False):
        each, more = divmod(total, len(lanes))
        for i, s in enumerate(lanes):
            s.target = each + (1 if i < more else 0)
        return False
    # Round by round, lanes that want no more than an even share get what they want; the rest is shared by those left.
    left, rest = total, list(lanes)
    while True:
        level = left // len(rest)
        again: list[Share] = []
        for s in rest:
            want = s.used + (1 if s.up else 0)
            if not s.hot and want <= level:
                s.target = want
                left -= want
            else:
                again.append(s)
        if len(again) == len(rest):
            break
        rest = again
    for i, s in enumerate(rest):
        s.target = -(-left // (len(rest) - i))
        left -= s.target
    return True


def roam(total: int, lanes: Sequence[Share], now: float) -> None:
    """Set the targets where there are fewer slots than lanes.

    The free ones travel, so that each lane is looked at in time. Where a slot finds work it stays, but for what it
    takes to look at the others.
    """
    busy = _heat(lanes, now, True)
    dwell = stay(total, len(lanes))
    by_age = [s for s in lanes if _look(s, now)]
    dealt = sum(s.target for s in by_age)
    by_age.sort(key=lambda s: s.looked)
    # While some lane has work, half of the slots stay there and the others look around.
    quota = max(total // 2, 1) if busy else total
    for s in by_age:
        if quota == 0 or now - s.looked < LOOK_EVERY - dwell:
            break
        if s.target > s.used:
            continue  # a slot is on its way
        if dealt < total:
            dealt += 1
        else:
            d = _donor(by_age, s, now, dwell)
            if d is None:
                break
            d.target -= 1
        s.target += 1
        quota -= 1
    for s in by_age:
        while dealt < total and s.target <= s.used:
            s.target += 1
            dealt += 1
    if busy:
        _gather(by_age, now, dwell)


def _look(s: Share, now: float) -> bool:
    """Note when slots stood open on a lane; report whether it can have some."""
    if not s.up:
        s.target, s.opened = 0, 0.0
        return False
    if s.slots <= s.used:
        s.opened = 0.0
    else:
        s.looked = now
        s.opened = s.opened or now
    s.looked = max(s.looked, s.filled)
    s.wanted = s.wanted and s.slots == 0
    if s.wanted:
        s.looked = 0.0  # tasks wait there
    return True


def _donor(lanes: Sequence[Share], but: Share, now: float, dwell: float) -> Share | None:
    """Find the lane that a slot is taken from: where it stands open in vain, else is at work, else is wanted."""
    best: tuple[int, int] | None = None
    found: Share | None = None
    for s in lanes:
        rank = 2 if s.hot else 1 if s.target <= s.used else 0
        if s is but or s.target == 0 or (rank == 0 and not s.idle_for(dwell, now)):
            continue
        if best is None or (rank, -s.target) < best:
            best, found = (rank, -s.target), s
    return found


def _gather(lanes: Sequence[Share], now: float, dwell: float) -> None:
    """Move slots that stand open in vain to the lanes that want more, in turn."""
    hot = [s for s in lanes if s.hot]
    if not hot:
        return
    for s in lanes:
        while not s.hot and s.target > s.used and s.idle_for(dwell, now):
            s.target -= 1
            min(hot, key=lambda x: x.target).target += 1
