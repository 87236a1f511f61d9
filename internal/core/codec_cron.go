package core

import "math"

// cronOp writes what follows the kind of an op of crons.
func (w *writer) cronOp(op Op) {
	switch op := op.(type) {
	case *CronSet:
		w.name(op.Name)
		w.int(op.IfVersion)
		w.byte(byte(op.Change))
		w.cronConfig(&op.Config)
		w.taskCreate(&op.Template)
	case *CronDelete:
		w.name(op.Name)
		w.int(op.IfVersion)
	case *CronFire:
		w.name(op.Name)
		f := w.fields(false)
		f.uint(op.Version)
		f.int(int64(op.Slot))
		f.int(int64(op.Run))
		f.uint(uint64(op.Passed))
		f.int(int64(op.Next))
		f.has(op.Waiting)
		f.id(op.Trigger)
	}
}

// cronOp reads what the writer's cronOp wrote.
func (r *reader) cronOp(kind OpKind) Op {
	switch kind {
	case OpCronDelete:
		return &CronDelete{Name: r.name(), IfVersion: r.int()}
	case OpCronFire:
		op := &CronFire{Name: r.name()}
		f := r.fields(false)
		op.Version, op.Slot, op.Run = f.uint(math.MaxUint64), ShardTime(f.int()), ShardTime(f.int())
		op.Passed, op.Next = uint32(f.uint(math.MaxUint32)), ShardTime(f.int())
		op.Waiting, op.Trigger = f.has(), f.id()
		f.end()
		return op
	}
	op := &CronSet{Name: r.name(), IfVersion: r.int(), Change: CronChange(r.byte())}
	r.cronConfig(&op.Config)
	r.template(&op.Template)
	return op
}

// cronConfig writes the fields of a configuration that are not zero.
func (w *writer) cronConfig(c *CronConfig) {
	w.text(c.Schedule)
	f := w.fields(false)
	f.name(c.Zone)
	f.int(int64(c.Jitter))
	f.int(int64(c.Start))
	f.int(int64(c.End))
	f.has(c.Paused)
	f.uint(uint64(c.Overlap))
	f.uint(uint64(c.CatchUp))
}

// cronConfig reads into c, which must be the zero value.
func (r *reader) cronConfig(c *CronConfig) {
	c.Schedule = r.text()
	f := r.fields(false)
	c.Zone, c.Jitter = f.name(), Millis(f.int())
	c.Start, c.End = ShardTime(f.int()), ShardTime(f.int())
	c.Paused = f.has()
	c.Overlap, c.CatchUp = CronOverlap(f.uint(math.MaxUint8)), CronCatchUp(f.uint(math.MaxUint8))
	f.end()
}

// template reads what taskCreate wrote, with its kind.
func (r *reader) template(to *TaskCreate) {
	switch kind := r.byte(); kind {
	case byte(OpTaskCreate), opTaskCreateMore:
		*to = *r.taskCreate(kind == opTaskCreateMore)
	case opTaskCreateBatch:
		*to = *r.taskCreateBatch()
	default:
		r.fail("template of kind %d", kind)
	}
}

// AppendTemplate appends the encoding of what a task is made of, as entries and the store hold it.
func AppendTemplate(dst []byte, op *TaskCreate) []byte {
	w := writer{b: dst}
	w.taskCreate(op)
	return w.b
}

// DecodeTemplate reads what AppendTemplate wrote. Slices point into b. Its error wraps ErrMalformed.
func DecodeTemplate(b []byte) (op TaskCreate, err error) {
	r := reader{b: b}
	r.template(&op)
	return op, r.end()
}

// cronOpSize is opSize of the ops of crons.
func cronOpSize(op Op) int {
	switch op := op.(type) {
	case *CronSet:
		return opHeader + len(op.Name) + varintBytes + 1 + nameBytes + len(op.Config.Schedule) + newName + len(op.Config.Zone) +
			6*varintBytes + opSize(&op.Template)
	case *CronDelete:
		return opHeader + len(op.Name) + varintBytes
	case *CronFire:
		return opHeader + len(op.Name) + 16 + 5*varintBytes
	}
	return 0
}
