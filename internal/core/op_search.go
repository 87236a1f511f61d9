package core

// Limits of the search service that Apply judges, equal on all replicas.
const (
	MaxPointPayload     = 64 << 10 // bytes of a point's payload
	MinDim              = 2        // of a collection's vectors
	MaxDim              = 4096
	MaxCollections      = 1000    // of a namespace: their definitions are kept in memory
	MaxCollectionFields = 64      // of a schema: a row has a column for each
	MaxTextFields       = 16      // of a collection, whose text is embedded
	MaxModelName        = 256     // bytes of the name of an embedder, or of a model
	MaxPoints           = 1 << 20 // of a collection in one partition, when its definition names no bound
	MaxRulesets         = 1000    // names of a namespace: kept in memory
	MaxRulesetBytes     = 64 << 10
	MaxRulesetVersions  = 100       // kept of one ruleset: the oldest leaves
	MaxRulesetVersion   = 1<<32 - 2 // highest number of a version
	MaxRecordings       = 1_000_000 // kept of a collection: the oldest leaves
	MaxRecordingBytes   = 1 << 20
	MaxRecordingTTL     = Millis(3653 * 24 * 3600 * 1000)
	RecordingTTL        = Millis(90 * 24 * 3600 * 1000) // how long a recording is kept that names no time
)

// Metric is how the vectors of a collection compare. Numbers are stored and on the wire.
type Metric uint8

// The metrics. Vectors under cosine are of length 1: the edge makes them so.
const (
	MetricCosine Metric = 1
	MetricDot    Metric = 2
)

// FieldType is what a declared field of payloads holds. Numbers are stored and on the wire.
type FieldType uint8

// The types of fields.
const (
	FieldKeyword    FieldType = 1
	FieldKeywords   FieldType = 2 // a list of keywords
	FieldInt        FieldType = 3
	FieldFloat      FieldType = 4
	FieldBool       FieldType = 5
	FieldTime       FieldType = 6
	FieldGeo        FieldType = 7
	FieldText       FieldType = 8
	FieldCredential FieldType = 9 // a list of {id, expires_at?}
)

// Gate is the part that a field has in who may be found. Numbers are stored and on the wire.
type Gate uint8

// The parts.
const (
	GateNone       Gate = 0
	GateRole       Gate = 1
	GateCredential Gate = 2
	GateBlock      Gate = 3
)

// SchemaField is a declared field of a collection's payloads.
type SchemaField struct {
	Name      string // 1 to 128 characters, as an identifier of expressions
	Type      FieldType
	Index     bool // filters, rules and decay may read it
	Gate      Gate
	Protected bool // read only by callers with the scope for it, and by no rule
}

// TextField is a field whose text is embedded, and how often it counts. Weight is in hundredths: no float is stored.
type TextField struct {
	Name   string
	Weight uint32 // 1 to 1000; 100 = once
}

// OnEmbedFailure says what becomes of an upsert whose text cannot be embedded. Numbers are stored and on the wire.
type OnEmbedFailure uint8

// EmbedFail refuses it: nothing is written.
const EmbedFail OnEmbedFailure = 0

// Collection is the definition of a collection: the same in all partitions of its namespace. It is fixed when it is made.
type Collection struct {
	Name     string
	UID      uint64 // at random, of the edge that made it: one of the same name that is made later has another
	Embedder string // empty: the server's default at the time
	Model    string // id of the model: vectors of two models do not compare
	Dim      uint32
	Metric   Metric
	Texts    []TextField
	Fields   []SchemaField
	// MaxPoints bounds the points of one partition; 0 = MaxPoints.
	MaxPoints int64
	OnFailure OnEmbedFailure
}

// Same reports whether two definitions ask for the same. Their makers may differ.
func (c *Collection) Same(o *Collection) bool {
	a, b := *c, *o
	a.UID, b.UID = 0, 0
	return string(AppendCollection(nil, &a)) == string(AppendCollection(nil, &b))
}

// CollectionSet makes a collection. One that exists and asks for the same is a replay.
type CollectionSet struct{ Collection Collection }

// CollectionDelete removes a collection with all its points and recordings. A name that is not there is not refused.
type CollectionDelete struct{ Name string }

// VectorUpsert stores a point of a collection: vector, payload, and the position of the write as its version.
type VectorUpsert struct {
	Collection string
	UID        uint64 // of the definition that the point was checked against; 0 = any
	ID         string // 1 to 128 characters
	Model      string // of the vector; empty = the collection's
	Vector     []byte // Dim numbers of 32 bits, IEEE 754, little-endian
	Payload    []byte // a JSON object; empty = none
	HasVersion bool   // IfVersion is a condition; 0 = the point is absent
	IfVersion  uint64
	IfAbsent   bool
}

// VectorDelete removes a point.
type VectorDelete struct {
	Collection string
	ID         string
	HasVersion bool // IfVersion is a condition
	IfVersion  uint64
}

// RulesetPut publishes a version of a ruleset, which is never changed. The newest one again is a replay.
type RulesetPut struct {
	Name    string
	Version uint32 // 0 = the one after the newest
	Rules   []byte // as the edge writes them, at most MaxRulesetBytes
}

// RulesetDelete removes a ruleset with all its versions. A name that is not there is not refused. Its name is free at once, and the
// numbers of its versions do not come again. Entries before FormatQueues have none.
type RulesetDelete struct{ Name string }

// RecordingPut keeps a search and its answer.
type RecordingPut struct {
	Collection string
	UID        uint64 // of the collection's definition
	ID         uint64 // at random; not 0
	TTL        Millis // 0 = RecordingTTL
	Data       []byte // as the edge writes it, at most MaxRecordingBytes
}

// Kind returns the op's number.
func (*CollectionSet) Kind() OpKind { return OpCollectionSet }

// Kind returns the op's number.
func (*CollectionDelete) Kind() OpKind { return OpCollectionDelete }

// Kind returns the op's number.
func (*VectorUpsert) Kind() OpKind { return OpVectorUpsert }

func (op *VectorUpsert) written() (string, []byte) { return op.Collection, []byte(op.ID) }

func (op *VectorUpsert) place(partitions int) (uint16, bool) {
	return PlacePoint(op.ID, partitions), true
}

// Kind returns the op's number.
func (*VectorDelete) Kind() OpKind { return OpVectorDelete }

func (op *VectorDelete) written() (string, []byte) { return op.Collection, []byte(op.ID) }

func (op *VectorDelete) place(partitions int) (uint16, bool) {
	return PlacePoint(op.ID, partitions), true
}

// Kind returns the op's number.
func (*RulesetPut) Kind() OpKind { return OpRulesetPut }

// Kind returns the op's number.
func (*RulesetDelete) Kind() OpKind { return OpRulesetDelete }

// Kind returns the op's number.
func (*RecordingPut) Kind() OpKind { return OpRecordingPut }

// PlacePoint returns the partition of a point: by the text within its id's first pair of braces, if there is any, else by all
// of its id.
func PlacePoint(id string, partitions int) uint16 { return PlaceKey([]byte(id), partitions) }

// PointChange is what an entry did to one point, for indexes that are derived from them. Slices are those of the entry.
type PointChange struct {
	Partition   Partition
	Incarnation uint32 // of the collection in its partition
	// Made is set when the collection was made, with no point; Gone when it was removed with all of them.
	Made    *Collection
	Gone    bool
	ID      string
	Slot    uint64 // of the point now; meaningless with Deleted
	Deleted bool
	Old     uint64 // slot of the point before; meaningless unless HadOld
	HadOld  bool
	Version uint64
	Vector  []byte
	Payload []byte
}

// StoredPoint is a point as readers of the store see it.
type StoredPoint struct {
	ID      string
	Version uint64
	Slot    uint64
	Vector  []byte
	Payload []byte
}

// CollectionInfo is a collection of one partition.
type CollectionInfo struct {
	Collection  Collection
	Incarnation uint32
	Points      uint64
	Slots       uint64 // given out so far
	Recordings  uint64
}

// Ruleset is one version of a ruleset.
type Ruleset struct {
	Name    string
	Version uint32
	Rules   []byte
}

// Recording is a kept search.
type Recording struct {
	ID      uint64
	At      ShardTime // when it was kept
	Expires ShardTime
	Data    []byte
}
