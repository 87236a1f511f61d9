package core

import "math"

// An object id is written as its length and its bytes: 0 for the zero id, 20 else. 32 is reserved for SHA-256.

// objectIDBytes is the most bytes that an object id takes.
const objectIDBytes = 1 + len(ObjectID{})

// oid writes the id of an object, after its length.
func (w *writer) oid(id ObjectID) {
	if id.IsZero() {
		w.byte(0)
		return
	}
	w.byte(byte(len(id)))
	w.b = append(w.b, id[:]...)
}

// oid reads the id of an object. One of 20 bytes must not be all zeros: zero has length 0.
func (r *reader) oid() (id ObjectID) {
	switch n := r.byte(); n {
	case 0:
	case byte(len(id)):
		copy(id[:], r.take(len(id)))
		r.nonZero(!id.IsZero())
	default:
		r.fail("object id of %d bytes", n)
	}
	return id
}

// oid writes the next field unless it is the zero id.
func (p *presence) oid(id ObjectID) {
	if p.has(!id.IsZero()) {
		p.w.oid(id)
	}
}

// oid reads the next field if it is present: an id that is not zero.
func (p *present) oid() (id ObjectID) {
	if p.has() {
		id = p.r.oid()
		p.r.nonZero(!id.IsZero())
	}
	return id
}

// refOp writes an op of the refs service.
func (w *writer) refOp(op Op) {
	switch op := op.(type) {
	case *RefTxn:
		w.refTxn(op)
	case *RepoCreate:
		w.name(op.Name)
		w.b = append(w.b, op.ID[:]...)
		w.text(op.Tag)
		w.text(op.Branch)
		w.repoConfig(&op.Config)
	case *RepoSet:
		w.name(op.Name)
		w.int(op.IfVersion)
		w.text(op.Branch)
		w.repoConfig(&op.Config)
	case *RepoDelete:
		w.name(op.Name)
		w.int(op.IfVersion)
	case *RepoUndelete:
		w.name(op.Name)
		f := w.fields(false)
		f.id(op.ID)
	case *PackSwap:
		w.name(op.Repo)
		w.b = append(w.b, op.ID[:]...)
		w.uint(uint64(len(op.Old)))
		for i := range op.Old {
			w.b = append(w.b, op.Old[i][:]...)
		}
		w.pack(&op.New)
		w.int(int64(op.StagedAt))
		w.uint(uint64(op.Epoch))
	}
}

// refOp reads what the writer's refOp wrote.
func (r *reader) refOp(kind OpKind) Op {
	switch kind {
	case OpRefTxn:
		return r.refTxn()
	case OpRepoCreate:
		op := &RepoCreate{Name: r.name()}
		copy(op.ID[:], r.take(len(op.ID)))
		op.Tag, op.Branch = r.text(), r.text()
		r.repoConfig(&op.Config)
		return op
	case OpRepoSet:
		op := &RepoSet{Name: r.name(), IfVersion: r.int(), Branch: r.text()}
		r.repoConfig(&op.Config)
		return op
	case OpRepoDelete:
		return &RepoDelete{Name: r.name(), IfVersion: r.int()}
	case OpRepoUndelete:
		op := &RepoUndelete{Name: r.name()}
		f := r.fields(false)
		op.ID = f.id()
		f.end()
		return op
	case OpPackSwap:
		op := &PackSwap{Repo: r.name()}
		copy(op.ID[:], r.take(len(op.ID)))
		if n := r.count(len(Digest{})); n > 0 {
			op.Old = make([]Digest, n)
		}
		for i := range op.Old {
			copy(op.Old[i][:], r.take(len(Digest{})))
		}
		r.pack(&op.New)
		op.StagedAt, op.Epoch = ShardTime(r.int()), uint32(r.max(math.MaxUint32))
		return op
	}
	r.fail("unknown op kind %d", kind)
	return nil
}

// refTxn writes a transaction, its changes last.
func (w *writer) refTxn(op *RefTxn) {
	w.name(op.Repo)
	f := w.fields(true)
	f.id(op.ID)
	f.has(op.Partial)
	f.text(op.Message)
	f.id(op.Push)
	if f.has(len(op.Packs) > 0) {
		w.uint(uint64(len(op.Packs)))
		for i := range op.Packs {
			w.pack(&op.Packs[i])
		}
	}
	f.int(int64(op.StagedAt))
	f.uint(uint64(op.Epoch))
	if f.has(len(op.Options) > 0) {
		w.texts(op.Options)
	}
	f.uint(uint64(op.Via))
	f.has(op.Admin)
	f.has(op.NoForce)
	f.text(op.Tag)
	w.uint(uint64(len(op.Changes)))
	for i := range op.Changes {
		w.refChange(&op.Changes[i])
	}
}

// minRefChange is the shortest change: kind, name, two bytes of presence bits.
const minRefChange = 4

// refTxn reads what the writer's refTxn wrote. Whether the changes fit together is judged by the machine.
func (r *reader) refTxn() *RefTxn {
	op := &RefTxn{Repo: r.name()}
	f := r.fields(true)
	op.ID = f.id()
	op.Partial = f.has()
	op.Message = f.text()
	op.Push = f.id()
	if f.has() {
		op.Packs = make([]Pack, r.count(2*len(Digest{})+1))
		for i := range op.Packs {
			r.pack(&op.Packs[i])
		}
		r.nonZero(len(op.Packs) > 0)
	}
	op.StagedAt = ShardTime(f.int())
	op.Epoch = uint32(f.uint(math.MaxUint32))
	if f.has() {
		op.Options = r.texts()
		r.nonZero(len(op.Options) > 0)
	}
	op.Via = Via(f.uint(math.MaxUint8))
	op.Admin, op.NoForce = f.has(), f.has()
	op.Tag = f.text()
	f.end()
	if n := r.count(minRefChange); n > 0 {
		op.Changes = make([]RefChange, n)
		for i := range op.Changes {
			r.refChange(&op.Changes[i])
		}
	}
	return op
}

// refChange writes one change, with the facts that its proposer found out.
func (w *writer) refChange(c *RefChange) {
	w.byte(byte(c.Kind))
	w.text(c.Name)
	f := w.fields(true)
	f.has(c.HasOld)
	f.oid(c.Old)
	f.oid(c.New)
	f.text(c.Target)
	f.has(c.HasOldTarget)
	f.text(c.OldTarget)
	f.has(c.NoDeref)
	f.has(c.MissingOK)
	f.text(c.Message)
	f.uint(uint64(c.Type))
	f.oid(c.Peeled)
	f.oid(c.Base)
	f.uint(uint64(c.Ancestry))
}

// refChange reads into c, which must be the zero value.
func (r *reader) refChange(c *RefChange) {
	c.Kind = OpKind(r.byte())
	c.Name = r.text()
	f := r.fields(true)
	c.HasOld, c.Old, c.New = f.has(), f.oid(), f.oid()
	c.Target = f.text()
	c.HasOldTarget, c.OldTarget = f.has(), f.text()
	c.NoDeref, c.MissingOK = f.has(), f.has()
	c.Message = f.text()
	c.Type = ObjectType(f.uint(math.MaxUint8))
	c.Peeled, c.Base = f.oid(), f.oid()
	c.Ancestry = Ancestry(f.uint(math.MaxUint8))
	f.end()
}

// pack writes a pack's digests, sizes in bytes and kind, in entries and in the manifest alike.
func (w *writer) pack(p *Pack) {
	w.b = append(w.b, p.Digest[:]...)
	w.b = append(w.b, p.Idx[:]...)
	f := w.fields(false)
	f.int(p.Bytes)
	f.int(p.IdxBytes)
	f.int(p.Objects)
	f.uint(uint64(p.Kind))
}

// pack reads into p, which must be the zero value.
func (r *reader) pack(p *Pack) {
	copy(p.Digest[:], r.take(len(p.Digest)))
	copy(p.Idx[:], r.take(len(p.Idx)))
	f := r.fields(false)
	p.Bytes, p.IdxBytes, p.Objects = f.int(), f.int(), f.int()
	p.Kind = PackKind(f.uint(math.MaxUint8))
	f.end()
}

// texts writes the number of strings and then each. They do not go through the table of names.
func (w *writer) texts(list []string) {
	w.uint(uint64(len(list)))
	for _, s := range list {
		w.text(s)
	}
}

// texts reads a list; its elements may be empty, and take a byte each then: the allocation stays within bounds.
func (r *reader) texts() []string {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	out := make([]string, n)
	for i := range out {
		out[i] = r.text()
	}
	return out
}

// repoConfig writes the settings of a repository, in entries and in its record alike.
func (w *writer) repoConfig(c *RepoConfig) {
	f := w.fields(true)
	f.uint(c.Version)
	f.uint(uint64(c.State))
	if f.has(len(c.Hide) > 0) {
		w.texts(c.Hide)
	}
	if f.has(len(c.Rules) > 0) {
		w.uint(uint64(len(c.Rules)))
		for i := range c.Rules {
			w.refRule(&c.Rules[i])
		}
	}
	f.int(int64(c.ReflogDays))
	f.int(int64(c.ReflogMax))
	f.int(c.MaxBytes)
	f.int(c.MaxPush)
}

// repoConfig reads into c, which must be the zero value.
func (r *reader) repoConfig(c *RepoConfig) {
	f := r.fields(true)
	c.Version = f.uint(math.MaxUint64)
	c.State = RepoState(f.uint(math.MaxUint8))
	if f.has() {
		c.Hide = r.texts()
		r.nonZero(len(c.Hide) > 0)
	}
	if f.has() {
		c.Rules = make([]RefRule, r.count(2))
		for i := range c.Rules {
			r.refRule(&c.Rules[i])
		}
		r.nonZero(len(c.Rules) > 0)
	}
	c.ReflogDays, c.ReflogMax = f.int32(), f.int32()
	c.MaxBytes, c.MaxPush = f.int(), f.int()
	f.end()
}

// refRule writes one rule of a repository.
func (w *writer) refRule(v *RefRule) {
	w.text(v.Refs)
	f := w.fields(false)
	f.uint(uint64(v.Deny))
	if f.has(len(v.Except) > 0) {
		w.texts(v.Except)
	}
	f.uint(uint64(v.Only))
	f.text(v.Queue)
}

// refRule reads into v, which must be the zero value.
func (r *reader) refRule(v *RefRule) {
	v.Refs = r.text()
	f := r.fields(false)
	v.Deny = Deny(f.uint(math.MaxUint8))
	if f.has() {
		v.Except = r.texts()
		r.nonZero(len(v.Except) > 0)
	}
	v.Only = Via(f.uint(math.MaxUint8))
	v.Queue = f.text()
	f.end()
}

// AppendRepo appends the record of a repository, as the store holds it.
func AppendRepo(dst []byte, v *Repo) []byte {
	w := writer{b: dst}
	w.b = append(w.b, v.ID[:]...)
	w.text(v.Name)
	f := w.fields(false)
	f.text(v.Tag)
	f.int(int64(v.CreatedAt))
	f.text(v.CreatedBy)
	f.int(int64(v.DeletedAt))
	w.repoConfig(&v.Config)
	return w.b
}

// DecodeRepo reads what AppendRepo wrote. Its error wraps ErrMalformed.
func DecodeRepo(b []byte) (v Repo, err error) {
	r := reader{b: b}
	copy(v.ID[:], r.take(len(v.ID)))
	v.Name = r.text()
	f := r.fields(false)
	v.Tag, v.CreatedAt, v.CreatedBy, v.DeletedAt = f.text(), ShardTime(f.int()), f.text(), ShardTime(f.int())
	f.end()
	r.repoConfig(&v.Config)
	return v, r.end()
}

// AppendRepoStats appends the counters of a repository, as the store holds them.
func AppendRepoStats(dst []byte, v *RepoStats) []byte {
	w := writer{b: dst}
	w.uint(v.Rev)
	w.int(v.Refs)
	w.int(v.Packs)
	w.int(v.Bytes)
	w.uint(v.Manifest)
	w.uint(uint64(v.Epoch))
	return w.b
}

// DecodeRepoStats reads what AppendRepoStats wrote. Its error wraps ErrMalformed.
func DecodeRepoStats(b []byte) (v RepoStats, err error) {
	r := reader{b: b}
	v = RepoStats{
		Rev: r.uint(), Refs: r.int(), Packs: r.int(), Bytes: r.int(), Manifest: r.uint(),
		Epoch: uint32(r.max(math.MaxUint32)),
	}
	return v, r.end()
}

// AppendPackLine appends a line of a manifest, as the store holds it.
func AppendPackLine(dst []byte, v *PackLine) []byte {
	w := writer{b: dst}
	w.pack(&v.Pack)
	w.int(int64(v.Stamp))
	w.uint(v.Index)
	return w.b
}

// DecodePackLine reads what AppendPackLine wrote. Its error wraps ErrMalformed.
func DecodePackLine(b []byte) (v PackLine, err error) {
	r := reader{b: b}
	r.pack(&v.Pack)
	v.Stamp, v.Index = ShardTime(r.int()), r.uint()
	return v, r.end()
}

// AppendRefLog appends a record of a ref's log, as the store holds it: all but its name and number, which are its key.
func AppendRefLog(dst []byte, v *RefLog) []byte {
	w := writer{b: dst}
	f := w.fields(true)
	f.oid(v.Old)
	f.oid(v.New)
	f.text(v.OldTarget)
	f.text(v.NewTarget)
	f.text(v.Principal)
	f.uint(uint64(v.Cause))
	f.id(v.Request)
	f.id(v.Task)
	f.uint(uint64(v.Token))
	f.text(v.Message)
	f.int(int64(v.Stamp))
	f.uint(v.Index)
	f.uint(v.Rev)
	return w.b
}

// DecodeRefLog reads what AppendRefLog wrote. Its error wraps ErrMalformed.
func DecodeRefLog(b []byte) (v RefLog, err error) {
	r := reader{b: b}
	f := r.fields(true)
	v.Old, v.New = f.oid(), f.oid()
	v.OldTarget, v.NewTarget, v.Principal = f.text(), f.text(), f.text()
	v.Cause = CauseKind(f.uint(math.MaxUint8))
	v.Request, v.Task = f.id(), f.id()
	v.Token = Token(f.uint(math.MaxUint64))
	v.Message = f.text()
	v.Stamp, v.Index, v.Rev = ShardTime(f.int()), f.uint(math.MaxUint64), f.uint(math.MaxUint64)
	f.end()
	return v, r.end()
}

// refsAnswer writes what an op of refs answers: for each change the ids before and after, or why it failed.
func (w *writer) refsAnswer(a *RefsAnswer) {
	f := w.fields(false)
	f.id(a.Repo)
	f.uint(a.Rev)
	w.uint(uint64(len(a.Changes)))
	for i := range a.Changes {
		c := &a.Changes[i]
		f := w.fields(false)
		f.oid(c.Old)
		f.oid(c.New)
		if f.has(c.Failure != nil) {
			w.refFailure(c.Failure)
		}
	}
}

// refsAnswer reads what the writer's refsAnswer wrote.
func (r *reader) refsAnswer() *RefsAnswer {
	a := &RefsAnswer{}
	f := r.fields(false)
	a.Repo, a.Rev = f.id(), f.uint(math.MaxUint64)
	f.end()
	if n := r.count(1); n > 0 {
		a.Changes = make([]RefResult, n)
		for i := range a.Changes {
			f := r.fields(false)
			a.Changes[i].Old, a.Changes[i].New = f.oid(), f.oid()
			if f.has() {
				failure := r.refFailure()
				a.Changes[i].Failure = &failure
			}
			f.end()
		}
	}
	return a
}

// refFailure writes why one change failed. The meaning of its fields depends on the reason.
func (w *writer) refFailure(v *RefFailure) {
	w.byte(byte(v.Reason))
	f := w.fields(false)
	f.int(int64(v.Change))
	f.text(v.Name)
	f.oid(v.Expected)
	f.oid(v.Actual)
	f.uint(uint64(v.Type))
	f.text(v.Other)
}

// refFailure reads what the writer's refFailure wrote.
func (r *reader) refFailure() (v RefFailure) {
	v.Reason = RefReason(r.byte())
	f := r.fields(false)
	v.Change, v.Name = int(f.int32()), f.text()
	v.Expected, v.Actual = f.oid(), f.oid()
	v.Type, v.Other = ObjectType(f.uint(math.MaxUint8)), f.text()
	f.end()
	return v
}

// refRefused writes the fact's fields, after its number.
func (w *writer) refRefused(v RefRefused) {
	w.text(v.Repo)
	w.uint(uint64(len(v.Failures)))
	for i := range v.Failures {
		w.refFailure(&v.Failures[i])
	}
}

// refRefused reads what follows the number of a RefRefused.
func (r *reader) refRefused() RefRefused {
	v := RefRefused{Repo: r.text()}
	if n := r.count(2); n > 0 {
		v.Failures = make([]RefFailure, n)
		for i := range v.Failures {
			v.Failures[i] = r.refFailure()
		}
	}
	return v
}

// The most bytes, besides texts, that a change, a pack and an op on a repository take.
const (
	refChangeHeader = 4 + nameBytes + 3*nameBytes + 4*objectIDBytes + 2
	packBytes       = 2*len(Digest{}) + 1 + 3*varintBytes + 2
	repoHeader      = opHeader + 16 + varintBytes + 3*nameBytes + 2 + 8*varintBytes
)

// refOpSize is opSize for the ops of refs.
func refOpSize(op Op) int {
	switch op := op.(type) {
	case *RefTxn:
		n := opHeader + newName + len(op.Repo) + 2*16 + 2*nameBytes + len(op.Message) + len(op.Tag) + 4*varintBytes + 3*nameBytes
		n += len(op.Packs) * packBytes
		for _, s := range op.Options {
			n += nameBytes + len(s)
		}
		for i := range op.Changes {
			c := &op.Changes[i]
			n += refChangeHeader + len(c.Name) + len(c.Target) + len(c.OldTarget) + len(c.Message)
		}
		return n
	case *RepoCreate:
		return repoHeader + len(op.Name) + len(op.Tag) + len(op.Branch) + repoConfigSize(&op.Config)
	case *RepoSet:
		return repoHeader + len(op.Name) + len(op.Branch) + repoConfigSize(&op.Config)
	case *RepoDelete:
		return repoHeader + len(op.Name)
	case *RepoUndelete:
		return repoHeader + len(op.Name)
	case *PackSwap:
		return repoHeader + len(op.Repo) + len(op.Old)*len(Digest{}) + packBytes + 2*varintBytes
	}
	return opHeader
}

// repoConfigSize is the most bytes that the lists of c take; its numbers are within repoHeader.
func repoConfigSize(c *RepoConfig) int {
	n := 0
	for _, s := range c.Hide {
		n += nameBytes + len(s)
	}
	for _, v := range c.Rules {
		n += 4*nameBytes + len(v.Refs) + len(v.Queue) + 8
		for _, s := range v.Except {
			n += nameBytes + len(s)
		}
	}
	return n
}
