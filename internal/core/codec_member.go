package core

import "math"

// MaxMembers bounds a directory.
const MaxMembers = 32

// member writes one line of the directory. Drained is not in it: AppendDirectory has it behind the job, so that older
// builds can read a directory where no member is drained.
func (w *writer) member(m *Member) {
	w.uint(m.Replica)
	w.uint(m.Node)
	w.text(m.Name)
	w.text(m.Peer)
	w.text(m.API)
	w.text(m.HTTP)
	w.byte(byte(m.State))
	w.b = append(w.b, m.Store[:]...)
	w.bool(m.Token != JoinHash{})
	if m.Token != (JoinHash{}) {
		w.b = append(w.b, m.Token[:]...)
	}
	w.int(int64(m.TokenUntil))
}

// member reads what the writer's member wrote. It does not judge the state: DecodeDirectory and the machine do.
func (r *reader) member() (m Member) {
	m.Replica, m.Node = r.uint(), r.uint()
	m.Name, m.Peer, m.API, m.HTTP = r.text(), r.text(), r.text(), r.text()
	m.State = MemberState(r.byte())
	copy(m.Store[:], r.take(len(m.Store)))
	if r.bool() {
		copy(m.Token[:], r.take(len(m.Token)))
		r.nonZero(m.Token != JoinHash{})
	}
	m.TokenUntil = ShardTime(r.int())
	return m
}

// leastMember is the least that a member takes.
const leastMember = 2 + 4 + 1 + 16 + 1 + 1

// members writes the number of members and then each, in the order of the list.
func (w *writer) members(list []Member) {
	w.uint(uint64(len(list)))
	for i := range list {
		w.member(&list[i])
	}
}

// members reads a list of members; nil when it is empty. Its caller judges MaxMembers and the order.
func (r *reader) members() []Member {
	n := r.count(leastMember)
	if n == 0 {
		return nil
	}
	out := make([]Member, n)
	for i := range out {
		out[i] = r.member()
	}
	return out
}

// memberOp writes the ops of membership.
func (w *writer) memberOp(op Op) {
	switch op := op.(type) {
	case *MembersInit:
		w.members(op.Members)
	case *MemberChange:
		w.byte(byte(op.Do))
		w.uint(op.Node)
		w.uint(op.With)
		w.bool(op.Learner)
		w.text(op.Name)
		w.text(op.Peer)
		w.text(op.API)
		w.text(op.HTTP)
		w.b = append(w.b, op.Store[:]...)
		w.bool(op.Token != JoinHash{})
		if op.Token != (JoinHash{}) {
			w.b = append(w.b, op.Token[:]...)
		}
	case *MemberStep:
		w.uint(op.Job)
		w.uint(op.Version)
		w.bool(op.Fail)
	case *FormatRaise:
		w.uint(uint64(op.To))
		w.uint(op.Members)
	}
}

// memberOp reads the ops of membership; nil for another kind.
func (r *reader) memberOp(kind OpKind) Op {
	switch kind {
	case OpMembersInit:
		return &MembersInit{Members: r.members()}
	case OpMemberChange:
		op := &MemberChange{Do: MemberVerb(r.byte()), Node: r.uint(), With: r.uint(), Learner: r.bool()}
		op.Name, op.Peer, op.API, op.HTTP = r.text(), r.text(), r.text(), r.text()
		copy(op.Store[:], r.take(len(op.Store)))
		if r.bool() {
			copy(op.Token[:], r.take(len(op.Token)))
			r.nonZero(op.Token != JoinHash{})
		}
		return op
	case OpMemberStep:
		return &MemberStep{Job: r.uint(), Version: r.uint(), Fail: r.bool()}
	case OpFormatRaise:
		return &FormatRaise{To: uint16(r.max(math.MaxUint16)), Members: r.uint()}
	}
	return nil
}

// memberOpSize is an upper bound of what an op of membership takes; 0 for another op.
func memberOpSize(op Op) int {
	switch op := op.(type) {
	case *MembersInit:
		n := opHeader + varintBytes
		for _, m := range op.Members {
			n += 3*varintBytes + 4*nameBytes + len(m.Name) + len(m.Peer) + len(m.API) + len(m.HTTP) + 2 + len(m.Store) + len(m.Token)
		}
		return n
	case *MemberChange:
		return opHeader + 2*varintBytes + 4*nameBytes + len(op.Name) + len(op.Peer) + len(op.API) + len(op.HTTP) + 3 +
			len(op.Store) + len(op.Token)
	}
	return 0
}

// The first byte of a stored directory. One with drained members ends with their replicas, and has the second format.
const (
	// No member is drained. This is also what builds wrote that knew no drained members.
	directoryFormat = 1
	// The replicas of drained members follow the job, ascending.
	directoryFormatDrained = 2
)

// AppendDirectory appends the stored form of a directory to dst.
func AppendDirectory(dst []byte, d *Directory) []byte {
	var drained []uint64
	for i := range d.Members {
		if d.Members[i].Drained {
			drained = append(drained, d.Members[i].Replica)
		}
	}
	w := &writer{b: append(dst, directoryFormat)}
	if len(drained) > 0 {
		w.b[len(dst)] = directoryFormatDrained
	}
	w.uint(d.Version)
	w.uint(d.Next)
	w.members(d.Members)
	j := &d.Job
	w.uint(j.ID)
	w.byte(byte(j.Kind))
	w.byte(byte(j.State))
	w.uint(j.Node)
	w.uint(j.Replica)
	w.uint(j.Old)
	w.byte(byte(j.Was))
	w.bool(j.Learner)
	w.byte(byte(j.Ending))
	w.text(j.Reason)
	w.int(int64(j.Started))
	w.int(int64(j.Deadline))
	w.int(int64(j.Ended))
	if len(drained) > 0 {
		w.uint(uint64(len(drained)))
		for _, replica := range drained {
			w.uint(replica)
		}
	}
	return w.b
}

// DecodeDirectory reads what AppendDirectory wrote, and nothing else. Errors: ErrMalformed.
func DecodeDirectory(b []byte) (d Directory, err error) {
	r := &reader{b: b}
	format := r.byte()
	if format != directoryFormat && format != directoryFormatDrained {
		r.fail("unknown format")
	}
	d.Version, d.Next = r.uint(), r.uint()
	d.Members = r.members()
	if len(d.Members) > MaxMembers {
		r.fail("%d members", len(d.Members))
	}
	for i := range d.Members {
		if i > 0 && d.Members[i].Replica <= d.Members[i-1].Replica {
			r.fail("member %d does not rise", d.Members[i].Replica)
		}
	}
	j := &d.Job
	j.ID, j.Kind, j.State = r.uint(), JobKind(r.byte()), JobState(r.byte())
	j.Node, j.Replica, j.Old = r.uint(), r.uint(), r.uint()
	j.Was, j.Learner, j.Ending, j.Reason = MemberState(r.byte()), r.bool(), JobState(r.byte()), r.text()
	j.Started, j.Deadline, j.Ended = ShardTime(r.int()), ShardTime(r.int()), ShardTime(r.int())
	if format == directoryFormatDrained {
		r.drained(&d)
	}
	if err := r.end(); err != nil {
		return Directory{}, err
	}
	return d, nil
}

// drained reads who is drained: at least one member, ascending.
func (r *reader) drained(d *Directory) {
	n := r.count(1)
	if n == 0 {
		r.fail("the list of drained members is empty")
	}
	for last := uint64(0); n > 0 && r.err == nil; n-- {
		replica := r.uint()
		m := d.Member(replica)
		if m == nil || replica <= last {
			r.fail("replica %d is drained", replica)
			return
		}
		m.Drained, last = true, replica
	}
}

// membershipFact writes the refusal of a change of membership, its number first.
func (w *writer) membershipFact(f WrongMembership) {
	w.byte(factWrongMembership)
	w.text(f.Reason)
	w.uint(f.Node)
	w.uint(f.Lag)
}

// membershipFact reads what follows the number.
func (r *reader) membershipFact() Fact {
	return WrongMembership{Reason: r.text(), Node: r.uint(), Lag: r.uint()}
}
