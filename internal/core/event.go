package core

// Event is something that an applied entry did, which others wait for or derive something from. It is a pointer to one of the
// types of this file, or a *PointChange. It does not decide anything and is not part of the state.
type Event interface{ event() }

// Ended is the event that a task became terminal.
type Ended struct {
	Partition Partition
	Task      TaskID
}

// Woken is the event that a queue gained ready tasks.
type Woken struct {
	Partition Partition
	Queue     string
}

// Lost is the event that a lease ended other than by its holder's settle, so that the holder can be told.
type Lost struct {
	Partition Partition
	Session   SessionID
	Task      TaskID
	Token     Token
	Reason    string // expired, max_run, released, removed, cancelled, force_released, disconnected
}

// CancelWanted is the event that the holder of a running task is asked to stop.
type CancelWanted struct {
	Partition Partition
	Session   SessionID
	Task      TaskID
	Token     Token
	Reason    string    // what the caller of the cancel gave
	Until     ShardTime // when the lease ends at the latest
}

// NamespaceGone is the event that a namespace left the directory.
type NamespaceGone struct{ NamespaceInfo }

// PartitionCleared is the event that what was left of a namespace in a partition is deleted.
type PartitionCleared struct{ Partition Partition }

func (*Ended) event()            {}
func (*Woken) event()            {}
func (*Lost) event()             {}
func (*CancelWanted) event()     {}
func (*PointChange) event()      {}
func (*NamespaceGone) event()    {}
func (*PartitionCleared) event() {}

// EventList gathers the events of an entry. It keeps its memory for the next one.
type EventList struct {
	list  []Event
	ended []Ended
	woken []Woken
	lost  []Lost
}

// keptEvents bounds the events whose memory is kept for the next entry.
const keptEvents = 4096

// Reset begins the list of another entry.
func (l *EventList) Reset() {
	if cap(l.list) > keptEvents {
		*l = EventList{}
		return
	}
	clear(l.list) // what a rare event points to may be large
	l.list, l.ended, l.woken, l.lost = l.list[:0], l.ended[:0], l.woken[:0], l.lost[:0]
}

// Add adds an event that has memory of its own.
func (l *EventList) Add(e Event) { l.list = append(l.list, e) }

// AddEnded adds that a task became terminal.
func (l *EventList) AddEnded(e Ended) { l.list = append(l.list, keep(&l.ended, e)) }

// AddWoken adds that a queue gained ready tasks.
func (l *EventList) AddWoken(e Woken) { l.list = append(l.list, keep(&l.woken, e)) }

// AddLost adds that a lease ended.
func (l *EventList) AddLost(e Lost) { l.list = append(l.list, keep(&l.lost, e)) }

// All returns the events in the order in which they were added.
func (l *EventList) All() []Event { return l.list }

// keep copies v into a chunk and returns where it is. A chunk that grows leaves the elements before at their old place.
func keep[T any](chunk *[]T, v T) *T {
	*chunk = append(*chunk, v)
	return &(*chunk)[len(*chunk)-1]
}
