package core

// View reads a shard's state at one instant. Keys are in the engine form that package keys encodes. Returned slices
// are valid until the function that was given the View returns, and must not be changed.
type View interface {
	// Get returns the value of key, and whether it is there. An error means that storage failed or is corrupt.
	Get(key []byte) (value []byte, ok bool, err error)
	// Scan calls fn for each key in [from, to) in key order until fn returns false. key and value are valid only
	// during the call of fn.
	Scan(from, to []byte, fn func(key, value []byte) bool) error
	// ScanBack is Scan in descending order. fn must not change the state.
	ScanBack(from, to []byte, fn func(key, value []byte) bool) error
}

// ScanRows calls fn for each key in [from, to) in key order, until fn returns false or an error, which it returns.
func ScanRows(v View, from, to []byte, fn func(key, value []byte) (more bool, err error)) error {
	// The error of fn: Scan itself knows only whether to go on.
	var bad error
	err := v.Scan(from, to, func(key, value []byte) bool {
		var more bool
		more, bad = fn(key, value)
		return more && bad == nil
	})
	if bad != nil {
		return bad
	}
	return err
}

// SomeRow reports whether there is a row in [from, to).
func SomeRow(v View, from, to []byte) (some bool, err error) {
	err = v.Scan(from, to, func([]byte, []byte) bool {
		some = true
		return false
	})
	return some, err
}

// Txn is how a state machine changes a shard's state while one entry is applied. Reads see the writes before them.
// Key and value slices handed to a Txn belong to it afterwards.
type Txn interface {
	View
	// Set stores value under key.
	Set(key, value []byte)
	// Insert is Set for a key that has never been stored since it was last deleted, and is not stored now: the caller
	// promises it. Deleting such a key again before the layer is written out leaves no trace in the store.
	Insert(key, value []byte)
	// Delete removes key, present or not.
	Delete(key []byte)
	// DeleteRange removes all keys in [from, to) as one mutation.
	DeleteRange(from, to []byte)
	// Mark starts remembering changes, so that Undo can take them back. Marks do not nest.
	Mark()
	// Undo takes back every change since Mark, and ends the mark.
	Undo()
	// Keep keeps every change since Mark, and ends the mark.
	Keep()
}

// ChangeCounter is a Txn that counts the changes made through it: equal on all replicas, as the apply hash holds.
type ChangeCounter struct {
	Txn
	Changes uint32
}

// Set counts a change.
func (c *ChangeCounter) Set(key, value []byte) { c.Changes++; c.Txn.Set(key, value) }

// Insert counts a change.
func (c *ChangeCounter) Insert(key, value []byte) { c.Changes++; c.Txn.Insert(key, value) }

// Delete counts a change.
func (c *ChangeCounter) Delete(key []byte) { c.Changes++; c.Txn.Delete(key) }

// DeleteRange counts a change.
func (c *ChangeCounter) DeleteRange(from, to []byte) { c.Changes++; c.Txn.DeleteRange(from, to) }
