package core

// PinnedPartition is where all tasks of a pinned queue are made.
const PinnedPartition = 0

// Pins reports whether a queue so shared is pinned: something bounds or orders its tasks as a whole, so all that clients make are in one
// partition of the namespace, whatever their keys and ids say.
func (s *QueueShare) Pins() bool {
	return s.Strict || s.Concurrency != 0 || s.Rate != Rate{} || s.MaxWorkers != 0 || s.Limiters[0] != ""
}

// factQueuePinned numbers QueuePinned in an encoded result.
const factQueuePinned byte = 23
