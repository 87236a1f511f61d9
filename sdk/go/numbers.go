package millrace

// numbers tell apart what a session sends: they rise by one over the life of a session id, so that the server knows what comes
// again. When one can no longer be used, as it was refused before it counted or the server forgot the session, a new life
// begins, once nothing of the old one is open. The session's mu guards them.
type numbers struct {
	life    uint64
	lastSeq uint64
	renew   bool // a new life is to begin
}

// number gives out the next number of the present life.
func (n *numbers) number() (seq, life uint64) {
	n.lastSeq++
	return n.lastSeq, n.life
}

// newLife gives a session another id, and numbers from 1.
func (n *numbers) newLife(s *session) {
	*n = numbers{life: n.life + 1}
	s.id = random16()
}
