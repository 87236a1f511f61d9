package millrace

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// newTaskID makes a task id: 48 bits of milliseconds, 12 bits of partition (0), 68 random bits, as 26 characters of
// base32 whose text order is their byte order.
func newTaskID() string { return freshID().String() }

// NewID makes a task id for the ID option: an Add repeated under the same id is answered, not done again. In a namespace
// of several partitions Add fills in which one it is, so that the handle has another id; Client.NewID makes one that stays.
func NewID() string { return newTaskID() }
