package core

import "math"

// Numbers of the search service's facts in an encoded result. They are stored and never reused.
const (
	factSearchState     byte = 48
	factDimMismatch     byte = 49
	factVersionMismatch byte = 50
	factSearchInvalid   byte = 51
	factEmbedDown       byte = 52
)

// searchOp writes an op of the search service.
func (w *writer) searchOp(op Op) {
	switch op := op.(type) {
	case *VectorUpsert:
		w.vectorUpsert(op)
	case *VectorDelete:
		w.name(op.Collection)
		w.text(op.ID)
		f := w.fields(false)
		f.has(op.HasVersion)
		f.uint(op.IfVersion)
	case *CollectionSet:
		w.collection(&op.Collection)
	case *CollectionDelete:
		w.name(op.Name)
	case *RulesetPut:
		w.name(op.Name)
		f := w.fields(false)
		f.uint(uint64(op.Version))
		f.bytes(op.Rules)
	case *RulesetDelete:
		w.name(op.Name)
	case *RecordingPut:
		w.name(op.Collection)
		f := w.fields(false)
		f.uint(op.UID)
		f.uint(op.ID)
		f.int(int64(op.TTL))
		f.bytes(op.Data)
	}
}

// searchOp reads what the writer's searchOp wrote.
func (r *reader) searchOp(kind OpKind) Op {
	switch kind {
	case OpVectorUpsert:
		return r.vectorUpsert()
	case OpVectorDelete:
		op := &VectorDelete{Collection: r.name(), ID: r.text()}
		f := r.fields(false)
		op.HasVersion, op.IfVersion = f.has(), f.uint(math.MaxUint64)
		f.end()
		return op
	case OpCollectionSet:
		op := &CollectionSet{}
		r.collection(&op.Collection)
		return op
	case OpCollectionDelete:
		op := &CollectionDelete{Name: r.name()}
		return op
	case OpRulesetPut:
		op := &RulesetPut{Name: r.name()}
		f := r.fields(false)
		op.Version, op.Rules = uint32(f.uint(math.MaxUint32)), f.bytes()
		f.end()
		return op
	case OpRulesetDelete:
		return &RulesetDelete{Name: r.name()}
	case OpRecordingPut:
		op := &RecordingPut{Collection: r.name()}
		f := r.fields(false)
		op.UID, op.ID = f.uint(math.MaxUint64), f.uint(math.MaxUint64)
		op.TTL, op.Data = Millis(f.int()), f.bytes()
		f.end()
		return op
	}
	r.fail("unknown op kind %d", kind)
	return nil
}

// vectorUpsert writes a point. The vector stays as the bytes of its numbers: no replica computes with them in Apply.
func (w *writer) vectorUpsert(op *VectorUpsert) {
	w.name(op.Collection)
	w.text(op.ID)
	f := w.fields(false)
	f.uint(op.UID)
	f.name(op.Model)
	f.bytes(op.Vector)
	f.bytes(op.Payload)
	f.has(op.HasVersion)
	f.uint(op.IfVersion)
	f.has(op.IfAbsent)
}

// vectorUpsert reads what the writer's vectorUpsert wrote. Vector and payload alias the input.
func (r *reader) vectorUpsert() *VectorUpsert {
	op := &VectorUpsert{Collection: r.name(), ID: r.text()}
	f := r.fields(false)
	op.UID, op.Model = f.uint(math.MaxUint64), f.name()
	op.Vector, op.Payload = f.bytes(), f.bytes()
	op.HasVersion, op.IfVersion, op.IfAbsent = f.has(), f.uint(math.MaxUint64), f.has()
	f.end()
	return op
}

// Bits of a schema field's options.
const (
	fieldIndex byte = 1 << iota
	fieldProtected
	fieldOptions = fieldProtected<<1 - 1
)

// collection writes a definition, in entries and in the store alike. Two definitions are the same when their bytes
// are, but for UID.
func (w *writer) collection(c *Collection) {
	w.name(c.Name)
	f := w.fields(true)
	f.uint(c.UID)
	f.text(c.Embedder)
	f.text(c.Model)
	f.uint(uint64(c.Dim))
	f.uint(uint64(c.Metric))
	if f.has(len(c.Texts) > 0) {
		w.uint(uint64(len(c.Texts)))
		for _, t := range c.Texts {
			w.text(t.Name)
			w.uint(uint64(t.Weight))
		}
	}
	if f.has(len(c.Fields) > 0) {
		w.uint(uint64(len(c.Fields)))
		for _, s := range c.Fields {
			var options byte
			if s.Index {
				options |= fieldIndex
			}
			if s.Protected {
				options |= fieldProtected
			}
			w.text(s.Name)
			w.byte(byte(s.Type))
			w.byte(byte(s.Gate))
			w.byte(options)
		}
	}
	f.int(c.MaxPoints)
	f.uint(uint64(c.OnFailure))
}

// collection reads into c, which must be the zero value.
func (r *reader) collection(c *Collection) {
	c.Name = r.name()
	f := r.fields(true)
	c.UID = f.uint(math.MaxUint64)
	c.Embedder, c.Model = f.text(), f.text()
	c.Dim = uint32(f.uint(math.MaxUint32))
	c.Metric = Metric(f.uint(math.MaxUint8))
	if f.has() {
		n := r.count(2)
		r.nonZero(n > 0)
		c.Texts = make([]TextField, n)
		for i := range c.Texts {
			c.Texts[i] = TextField{Name: r.text(), Weight: uint32(r.max(math.MaxUint32))}
		}
	}
	if f.has() {
		n := r.count(4)
		r.nonZero(n > 0)
		c.Fields = make([]SchemaField, n)
		for i := range c.Fields {
			s := &c.Fields[i]
			s.Name = r.text()
			s.Type, s.Gate = FieldType(r.byte()), Gate(r.byte())
			options := r.byte()
			if options&^fieldOptions != 0 {
				r.fail("unknown options %#x of a field", options)
			}
			s.Index, s.Protected = options&fieldIndex != 0, options&fieldProtected != 0
		}
	}
	c.MaxPoints = f.int()
	c.OnFailure = OnEmbedFailure(f.uint(math.MaxUint8))
	f.end()
}

// AppendCollection appends the encoding of c, as the store holds it.
func AppendCollection(dst []byte, c *Collection) []byte {
	w := writer{b: dst}
	w.collection(c)
	return w.b
}

// DecodeCollection reads what AppendCollection wrote. Its error wraps ErrMalformed.
func DecodeCollection(b []byte) (c Collection, err error) {
	r := reader{b: b}
	r.collection(&c)
	return c, r.end()
}

// searchOpSize is opSize of the ops of search; 0 for an op that is not one.
func searchOpSize(op Op) int {
	switch op := op.(type) {
	case *VectorUpsert:
		return opHeader + len(op.Collection) + nameBytes + len(op.ID) + 2*varintBytes + newName + len(op.Model) +
			2*nameBytes + len(op.Vector) + len(op.Payload)
	case *VectorDelete:
		return opHeader + len(op.Collection) + nameBytes + len(op.ID) + varintBytes
	case *CollectionSet:
		c := &op.Collection
		n := opHeader + len(c.Name) + 4*varintBytes + 4*nameBytes + len(c.Embedder) + len(c.Model) + 2 + nameBytes
		for _, t := range c.Texts {
			n += 2*nameBytes + len(t.Name)
		}
		for _, s := range c.Fields {
			n += nameBytes + len(s.Name) + 3
		}
		return n
	case *CollectionDelete:
		return opHeader + len(op.Name)
	case *RulesetPut:
		return opHeader + len(op.Name) + 2*nameBytes + len(op.Rules)
	case *RulesetDelete:
		return opHeader + newName + len(op.Name)
	case *RecordingPut:
		return opHeader + len(op.Collection) + 3*varintBytes + nameBytes + len(op.Data)
	}
	return 0
}

// searchFact writes a fact of search, its number first, and reports whether fact is one.
func (w *writer) searchFact(fact Fact) bool {
	switch f := fact.(type) {
	case SearchState:
		w.byte(factSearchState)
		w.text(f.Reason)
		w.text(f.Field)
		w.text(f.Want)
		w.text(f.Got)
	case DimMismatch:
		w.byte(factDimMismatch)
		w.text(f.Field)
		w.int(f.Want)
		w.int(f.Got)
	case VersionMismatch:
		w.byte(factVersionMismatch)
		w.text(f.Collection)
		w.text(f.ID)
		w.uint(uint64(f.Partition))
		w.uint(f.Version)
	case SearchInvalid:
		w.byte(factSearchInvalid)
		w.text(f.Field)
		w.text(f.Reason)
		w.text(f.Message)
		w.uint(uint64(len(f.Near)))
		for _, name := range f.Near {
			w.text(name)
		}
		w.int(int64(f.Line))
		w.int(int64(f.Column))
	case EmbedUnavailable:
		w.byte(factEmbedDown)
		w.int(int64(f.After))
	default:
		return false
	}
	return true
}

// searchFact reads the fact of a number. It is the last of the readers of facts, and fails for a number that none
// knows.
func (r *reader) searchFact(number byte) Fact {
	switch number {
	case factSearchState:
		return SearchState{Reason: r.text(), Field: r.text(), Want: r.text(), Got: r.text()}
	case factDimMismatch:
		return DimMismatch{Field: r.text(), Want: r.int(), Got: r.int()}
	case factVersionMismatch:
		return VersionMismatch{
			Collection: r.text(), ID: r.text(), Partition: uint16(r.max(math.MaxUint16)), Version: r.uint(),
		}
	case factSearchInvalid:
		f := SearchInvalid{Field: r.text(), Reason: r.text(), Message: r.text()}
		if n := r.count(1); n > 0 {
			f.Near = make([]string, n)
			for i := range f.Near {
				f.Near[i] = r.text()
			}
		}
		f.Line, f.Column = int(r.int()), int(r.int())
		return f
	case factEmbedDown:
		return EmbedUnavailable{After: Millis(r.int())}
	}
	r.fail("unknown fact %d", number)
	return nil
}
