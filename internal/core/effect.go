package core

// MaxEffects is how many effects of a completion are listed; all are counted.
const MaxEffects = 100

// MaxEffectKey bounds the bytes of a key that is listed; a longer one is cut.
const MaxEffectKey = 256

// Effect is what one op of a commit that completed a task did, or what one of its conditions asked for.
type Effect struct {
	Op    OpKind // of a change of a ref: its own kind
	Space string // keyspace, repository, collection or queue; empty: the op has none
	Key   []byte // key, name of the ref, id of the point, of the task or of the batch, at most MaxEffectKey bytes
	Rev   uint64 // revision of what was written, or version of the point; 0: it has none
	To    string // of a ref: what it points to from then on; empty: it is gone
	Long  bool   // Key was cut
}

// Effects is what a task's completion did beyond the task.
type Effects struct {
	Index      uint64 // of the entry
	At         ShardTime
	Token      Token
	Rev        uint64 // of the commit; 0: it wrote nothing that has one
	Ops        []Effect
	Count      int // of all ops besides the completion; above len(Ops) where not all are listed
	Conditions []Effect
	Checked    int // of all conditions
}

// EffectsOf lists what a commit does besides settling tasks. rev is the revision that its writes get.
func EffectsOf(c *Commit, rev uint64) (e Effects) {
	for _, op := range c.Ops {
		if op.Kind().Has(OpSettles) {
			continue
		}
		if txn, ok := op.(*RefTxn); ok {
			for i := range txn.Changes {
				e.add(effectOfRef(txn.Repo, &txn.Changes[i]))
			}
			continue
		}
		one := effectOf(op)
		if op.Kind().Has(OpTakesRev) {
			e.Rev = rev
			if op.Kind().Has(OpWritesOne) {
				one.Rev = rev
			}
		}
		e.add(one)
	}
	for _, check := range c.Conditions {
		if e.Checked++; len(e.Conditions) < MaxEffects {
			e.Conditions = append(e.Conditions, cutEffect(effectOf(check)))
		}
	}
	return e
}

// add counts an effect, and lists it while there is room.
func (e *Effects) add(one Effect) {
	if e.Count++; len(e.Ops) < MaxEffects {
		e.Ops = append(e.Ops, cutEffect(one))
	}
}

// cutEffect cuts a key to the length that is listed.
func cutEffect(e Effect) Effect {
	if len(e.Key) > MaxEffectKey {
		e.Key, e.Long = e.Key[:MaxEffectKey], true
	}
	return e
}

// effectOf says what an op is about.
func effectOf(op Op) Effect {
	e := Effect{Op: op.Kind()}
	switch op := op.(type) {
	case *TaskCreate:
		e.Space, e.Key = op.Queue, []byte(op.ID.String())
	case *KVCheck:
		e.Space, e.Key = op.Keyspace, op.Key
	case *KVDeleteRange:
		if e.Space, e.Key = op.Keyspace, op.From; len(op.Prefix) > 0 {
			e.Key = op.Prefix
		}
	case *QueuePause:
		e.Space = op.Queue
	case *BatchOpen, *BatchSeal, *BatchCancel:
		id, _ := BatchOf(op)
		e.Key = []byte(id.String())
	default:
		if w, ok := WrittenBy(op); ok {
			e.Space, e.Key = w.In, w.Key
		} else if id, ok := TaskOf(op); ok {
			e.Key = []byte(id.String())
		}
	}
	return e
}

// effectOfRef says what a change of a ref is about.
func effectOfRef(repo string, c *RefChange) Effect {
	e := Effect{Op: c.Kind, Space: repo, Key: []byte(c.Name), To: c.Target}
	if c.New != (ObjectID{}) {
		e.To = c.New.String()
	}
	return e
}
