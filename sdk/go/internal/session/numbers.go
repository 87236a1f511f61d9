package session

import (
	"time"

	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// numbers tell apart what a session sends: they rise by one over the life of a session id, so that the server knows what comes
// again. When one can no longer be used, as it was refused before it counted or the server forgot the session, a new life
// begins, once nothing of the old one is open. The session's mu guards them.
type numbers struct {
	// life counts the session's ids, so that a call can tell whether its number is of the present one.
	life uint64
	// lastSeq is the number that was given out last in this life; 0 = none.
	lastSeq uint64
	// renew says that a new life is to begin.
	renew bool
	// counted says that a number of this life was applied, so that the server knew the session.
	counted bool
}

// firstWait is how long a number is sent again that a server refuses because it knows nothing of the session: those before it,
// of which none was applied yet, are on their way again too, as after a change of leader.
const firstWait = 15 * time.Second

// early reports whether a number that was sent before was refused only because those before it are not applied yet. One that
// was sent once is known not to count; one of a session that the server knew once was not applied either, because a server
// remembers a session for longer than any number of it is sent again.
func (n *numbers) early(seq uint64, tries int, first time.Time) bool {
	return tries > 1 && seq > 1 && !n.counted && time.Since(first) < firstWait
}

// forgotten reports whether a number that a server refuses because it does not know the session was certainly not applied.
func (n *numbers) forgotten(seq uint64, tries int, first time.Time) bool {
	return tries == 1 || seq > 1 && n.counted && time.Since(first) < retry.ResendFor
}

// number gives out the next number of the present life.
func (n *numbers) number() (seq, life uint64) {
	n.lastSeq++
	return n.lastSeq, n.life
}

// newLife gives a session another id, and numbers from 1.
func (n *numbers) newLife(s *session) {
	*n = numbers{life: n.life + 1}
	s.id = wire.Random16()
}
