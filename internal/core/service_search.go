package core

import "math"

// What a node offers to its edges for search, in types that both know.

// EmbedModel is an embedder as edges know it.
type EmbedModel struct {
	Name     string   // of the embedder, as collections and requests name it
	Model    string   // id of the model: vectors of two models do not compare
	Older    []string // ids of models before it, which collections that were made with them keep
	Dim      int      // 0: not known before the first call
	Given    bool     // vectors come from clients alone: it makes none of texts
	Semantic bool     // false: it counts words, not what they mean
}

// EmbedRequest asks an embedder for the vectors of texts.
type EmbedRequest struct {
	Tenant   string // whose texts these are: what one embedded is not told to another
	Embedder string
	Model    string // one of the embedder's older models; otherwise it is its newest
	Query    bool   // texts of queries, not of documents
	Texts    []string
	Whole    bool // refuse a text that is longer than the model takes, instead of cutting it
	// Protected texts are kept apart from all others, so that who embeds the same text is not told that it was known.
	Protected bool
	Each      bool // a text that the model refuses fails by itself
	Tokens    bool // each text is a JSON array of the model's tokens
}

// Embedding is the vector of one text, or why it has none. The vector is shared and must not be changed.
type Embedding struct {
	Fact      Fact // where Each is asked for
	Vector    []float32
	Tokens    int
	Cached    bool
	Truncated bool
	Text      EmbeddedText // nil if it is not kept
}

// EmbeddedText is a vector that an embedder keeps, in forms that are made once.
type EmbeddedText interface {
	JSON() []byte // an array of numbers
}

// SearchGate is who may be found at all.
type SearchGate struct {
	Roles       []string
	AnyRole     bool
	Credentials []string
	ValidAt     int64 // nanoseconds since 1970; 0 = now, which At of the answer tells
	Client      string
	IDsIn       []string // empty = any
	IDsNotIn    []string
	Filter      string
	Params      []byte // a JSON object, or nothing
}

// SearchQuery is one search in one partition. The vector fits the collection and its metric.
type SearchQuery struct {
	Collection string
	Vector     []float32
	Embedded   EmbeddedText // that Vector is of; nil if it is not kept
	K          int          // 1 to 1000
	Gate       SearchGate

	Ruleset      string // empty = no judge
	Version      uint32 // of it; 0 = the newest
	JudgeParams  []byte
	EligibleOnly bool

	Dense       float64
	Lexical     float64 // weight of Words; 0: they do not count
	Words       string  // the text of the query
	HasMinScore bool
	MinScore    float64
	DecayField  string // empty = none
	HalfLife    Millis

	Exact      bool
	Candidates int  // 0 = the larger of 50 and 5 k
	Width      int  // of a walk; 0 = the larger of 120 and 4 k
	Partial    bool // when the time is up, what was found by then is the answer
	Payload    bool
	Explain    bool
	Read       ReadOptions
}

// SearchReason is what a rule said of a row.
type SearchReason struct {
	Rule    string
	OK      bool
	Reason  string
	Missing bool
}

// SearchHit is a row that was found.
type SearchHit struct {
	ID         string
	Partition  uint16
	Version    uint64
	Score      float64
	Eligible   bool // else conditional
	JudgeScore float64
	Dense      float64
	Lexical    float64
	Decay      float64
	Reasons    []SearchReason
	Payload    []byte
}

// GateCounts counts rows: Considered = Passed + all that were blocked, each by the first step that stopped it.
type GateCounts struct {
	Considered, Passed                   uint64
	IDs, Role, Credential, Block, Filter uint64
	ValidAt                              int64 // nanoseconds since 1970
}

// Add adds the rows of another partition.
func (c *GateCounts) Add(o GateCounts) {
	c.Considered += o.Considered
	c.Passed += o.Passed
	c.IDs += o.IDs
	c.Role += o.Role
	c.Credential += o.Credential
	c.Block += o.Block
	c.Filter += o.Filter
	c.ValidAt = max(c.ValidAt, o.ValidAt)
}

// SearchAnswer is what a search in one partition found.
type SearchAnswer struct {
	Hits        []SearchHit
	Gate        GateCounts
	Judged      uint64
	Blocked     uint64
	Conditional uint64
	Version     uint32 // of the ruleset
	Plan        string
	Numbers     SearchNumbers
	Stopped     string // the stage that was cut short; empty: the answer is whole
	At          At
	// Nanoseconds of each stage.
	GateNanos, RetrieveNanos, JudgeNanos, MergeNanos int64
}

// SearchNumbers say what a plan did.
type SearchNumbers struct {
	Compared  uint64 // rows that were compared one by one
	Width     uint64 // of the last walk; 0: there was none
	Rounds    uint64 // how often candidates were asked for
	GraphRows uint64
	TailRows  uint64
}

// Add adds what was done in another partition.
func (n *SearchNumbers) Add(o SearchNumbers) {
	n.Compared += o.Compared
	n.Width = max(n.Width, o.Width)
	n.Rounds = max(n.Rounds, o.Rounds)
	n.GraphRows += o.GraphRows
	n.TailRows += o.TailRows
}

// SearchStats is a collection's index on the node that answers.
type SearchStats struct {
	Rows      uint64
	Memory    int64
	GraphRows uint64
	TailRows  uint64
}

// Rule is one rule of a ruleset.
type Rule struct {
	ID        string
	When      string
	Severity  string // block, conditional, penalty, bonus
	Weight    float64
	Reason    string
	OnMissing string // block, conditional, ignore; empty = by severity
}

// RulesetRules is what a version of a ruleset holds.
type RulesetRules struct {
	Collection string // whose fields the rules read
	Rules      []Rule
}

// AppendRules appends the encoding of r, as ops and the store hold it.
func AppendRules(dst []byte, r *RulesetRules) []byte {
	w := writer{b: dst}
	w.text(r.Collection)
	w.uint(uint64(len(r.Rules)))
	for i := range r.Rules {
		u := &r.Rules[i]
		w.text(u.ID)
		w.text(u.When)
		f := w.fields(false)
		f.text(u.Severity)
		f.uint(math.Float64bits(u.Weight))
		f.text(u.Reason)
		f.text(u.OnMissing)
	}
	return w.b
}

// DecodeRules reads what AppendRules wrote. Its error wraps ErrMalformed.
func DecodeRules(b []byte) (*RulesetRules, error) {
	r := reader{b: b}
	out := &RulesetRules{Collection: r.text()}
	if n := r.count(3); n > 0 {
		out.Rules = make([]Rule, n)
	}
	for i := range out.Rules {
		u := &out.Rules[i]
		u.ID, u.When = r.text(), r.text()
		f := r.fields(false)
		u.Severity = f.text()
		u.Weight = math.Float64frombits(f.uint(math.MaxUint64))
		u.Reason, u.OnMissing = f.text(), f.text()
		f.end()
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return out, nil
}
