package core

// MaxLostLeases is how many leases one SessionLost names: about as many as one entry has commits.
const MaxLostLeases = 512

// SessionLost ends leases of a session whose stream broke and was not resumed within the disconnect grace. Each ends as a crash of
// its holder, as if its time were over. A lease that is no longer of the session, or that was renewed after the leader had a look,
// stays. The leader alone proposes it, from FormatOperate on.
type SessionLost struct {
	Session SessionID
	Leases  []SeenLease // at most MaxLostLeases
}

// SeenLease is a lease as it was when somebody had a look at it.
type SeenLease struct {
	Task  TaskID
	Token Token
	Until ShardTime // when it ended; a renewal moves that
}

// Kind returns the op's number.
func (*SessionLost) Kind() OpKind { return OpSessionLost }
