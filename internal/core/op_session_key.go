package core

import "math"

// SessionKeyBytes is the length of a key that seals sessions of browsers.
const SessionKeyBytes = 32

// SessionKeyLasts is how long a key seals new sessions, until another one may be added. It opens what it has sealed for twice as
// long, so that a session of half of it never outlives its key.
const SessionKeyLasts Millis = 24 * 60 * 60 * 1000

// SessionKeyAdd gives all nodes a key that seals sessions of browsers. Nodes that want one at the same time add one together: a key
// that comes while the last one is new is left out.
type SessionKeyAdd struct {
	Secret []byte // SessionKeyBytes long
	// End ends all sessions: no other key stays, and the key is taken at any time.
	End bool
}

// SessionKey is a key that was added.
type SessionKey struct {
	Secret []byte
	Made   ShardTime // as wall clocks showed it
}

// SessionKeys are the keys that open sessions, the newest last: two at most.
type SessionKeys struct {
	Version uint64 // rises with each key
	Turn    uint64 // rises when all sessions are ended
	Keys    []SessionKey
}

// Kind returns the op's number.
func (*SessionKeyAdd) Kind() OpKind { return OpSessionKeyAdd }

// sessionKeyAdd writes the op.
func (w *writer) sessionKeyAdd(op *SessionKeyAdd) {
	w.bytes(op.Secret)
	w.bool(op.End)
}

// sessionKeyAdd reads the op.
func (r *reader) sessionKeyAdd() Op {
	return &SessionKeyAdd{Secret: r.bytes(), End: r.bool()}
}

// AppendSessionKeys appends the encoding of k, as the store holds it.
func AppendSessionKeys(dst []byte, k *SessionKeys) []byte {
	w := writer{b: dst}
	w.uint(k.Version)
	w.uint(k.Turn)
	w.uint(uint64(len(k.Keys)))
	for _, one := range k.Keys {
		w.bytes(one.Secret)
		w.int(int64(one.Made))
	}
	return w.b
}

// DecodeSessionKeys reads what AppendSessionKeys wrote, with bytes of its own. Its error wraps ErrMalformed.
func DecodeSessionKeys(b []byte) (k SessionKeys, err error) {
	r := reader{b: b}
	k.Version, k.Turn = r.max(math.MaxUint64), r.max(math.MaxUint64)
	for range r.max(2) {
		k.Keys = append(k.Keys, SessionKey{Secret: append([]byte(nil), r.bytes()...), Made: ShardTime(r.int())})
	}
	return k, r.end()
}
