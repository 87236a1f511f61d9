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
	Tenant string // whose texts these are: what one embedded is not told to another
	// The name of the embedder.
	Embedder string
	Model    string // one of the embedder's older models; otherwise it is its newest
	Query    bool   // texts of queries, not of documents
	// What is embedded; the answer has one embedding for each, in this order.
	Texts []string
	Whole bool // refuse a text that is longer than the model takes, instead of cutting it
	// Protected texts are kept apart from all others, so that who embeds the same text is not told that it was known.
	Protected bool
	// A text that the model refuses fails by itself.
	Each   bool
	Tokens bool // each text is a JSON array of the model's tokens
}

// Embedding is the vector of one text, or why it has none. The vector is shared and must not be changed.
type Embedding struct {
	Fact Fact // where Each is asked for
	// Dim numbers of the model; nil with a Fact.
	Vector []float32
	// How many tokens of the model the text has.
	Tokens int
	// The vector was kept from an earlier request: the model was not asked.
	Cached bool
	// The text was longer than the model takes, and its end does not count.
	Truncated bool
	Text      EmbeddedText // nil if it is not kept
}

// EmbeddedText is a vector that an embedder keeps, in forms that are made once.
type EmbeddedText interface {
	JSON() []byte // an array of numbers
	// Words are those that cut makes of text, kept if text is the first that is asked for.
	Words(text string, cut func(text string) []string) []string
}

// SearchGate is who may be found at all.
type SearchGate struct {
	// A row must hold one of them.
	Roles []string
	// Roles are not asked for.
	AnyRole bool
	// A row must hold each of them, and none may have expired at ValidAt.
	Credentials []string
	ValidAt     int64 // nanoseconds since 1970; 0 = now, which At of the answer tells
	// Who searches: rows that have it in a block list are not found. Empty = no one is blocked.
	Client string
	IDsIn  []string // empty = any
	// Rows with these ids are not found.
	IDsNotIn []string
	// An expression over indexed fields; empty = all rows pass.
	Filter string
	Params []byte // a JSON object, or nothing
}

// SearchQuery is one search in one partition. The vector fits the collection and its metric.
type SearchQuery struct {
	Collection string
	// Dim numbers of 32 bits, the vector of the query.
	Vector   []float32
	Embedded EmbeddedText // that Vector is of; nil if it is not kept
	K        int          // 1 to 1000
	Gate     SearchGate

	Ruleset string // empty = no judge
	Version uint32 // of it; 0 = the newest
	// Parameters of the rules, a JSON object; empty = those of the gate.
	JudgeParams []byte
	// Rows that the rules call conditional are not found either.
	EligibleOnly bool

	// Weight of the dot product of the vectors.
	Dense   float64
	Lexical float64 // weight of Words; 0: they do not count
	Words   string  // the text of the query
	// MinScore is a condition: rows with a lower score are not in the answer.
	HasMinScore bool
	MinScore    float64
	DecayField  string // empty = none
	// A row's score halves each time this has passed since the time in DecayField.
	HalfLife Millis

	// Every row that passes the gate is compared: no walk over a graph leaves one out.
	Exact      bool
	Candidates int  // 0 = the larger of 50 and 5 k
	Width      int  // of a walk; 0 = the larger of 120 and 4 k
	Partial    bool // when the time is up, what was found by then is the answer
	// Hits carry the payloads of their rows.
	Payload bool
	// Hits carry what each rule said.
	Explain bool
	Read    ReadOptions
}

// SearchReason is what a rule said of a row.
type SearchReason struct {
	// Id of the rule.
	Rule   string
	OK     bool
	Reason string
	// The rule could not be decided, since a field that it reads is missing in the row.
	Missing bool
}

// SearchHit is a row that was found.
type SearchHit struct {
	ID string
	// Where the row is stored; its version is a position in that partition.
	Partition uint16
	Version   uint64
	Score     float64
	Eligible  bool // else conditional
	// Parts of the score: of the rules, of the vectors, of the words, and how much age leaves of it.
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
	Hits []SearchHit
	Gate GateCounts
	// Rows that the rules saw, that they blocked, and that they called conditional.
	Judged      uint64
	Blocked     uint64
	Conditional uint64
	Version     uint32 // of the ruleset
	// How rows were found: for those who tune an index.
	Plan    string
	Numbers SearchNumbers
	Stopped string // the stage that was cut short; empty: the answer is whole
	At      At
	// Nanoseconds of each stage.
	GateNanos, RetrieveNanos, JudgeNanos, MergeNanos int64
}

// SearchNumbers say what a plan did.
type SearchNumbers struct {
	Compared uint64 // rows that were compared one by one
	Width    uint64 // of the last walk; 0: there was none
	Rounds   uint64 // how often candidates were asked for
	// Rows that the graph of the last walk covers, and newer rows that it does not yet.
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
	Rows uint64
	// In bytes.
	Memory    int64
	GraphRows uint64
	TailRows  uint64
}

// Rule is one rule of a ruleset.
type Rule struct {
	ID       string
	When     string
	Severity string // block, conditional, penalty, bonus
	// 0 to 2: what a bonus adds and a penalty takes; 0 for other severities.
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
