package load

import (
	"fmt"
	"strings"
)

// SearchStyles are the ways in which an order is put into words. They differ in words and in their
// order, so that a search cannot rely on equal words.
var SearchStyles = []string{"need", "client_first", "looking", "shorthand"}

// SearchQuery is an order in one style, as a body of the search door, and what its best answers are.
type SearchQuery struct {
	// Order is the index in SearchData.Orders.
	Order int
	// Style is one of SearchStyles.
	Style string
	// Text is the order in words.
	Text string
	// Body is a request of POST /v1/matrix/search with the text.
	Body []byte
}

// SearchBodies says what the bodies of a search contain in addition to the text.
type SearchBodies struct {
	// Collection is the collection that is searched; default workers.
	Collection string
	// Ruleset judges the rows; empty: none does.
	Ruleset string
	// Gated says that role, certificate, client, status and distance are conditions of the search.
	Gated bool
	// K is the number of rows that are wanted; default 10.
	K int
}

// Queries returns every order in every style, order by order, or in the styles given.
func (d *SearchData) Queries(b SearchBodies, styles ...string) []SearchQuery {
	if len(styles) == 0 {
		styles = SearchStyles
	}
	var out []SearchQuery
	for i := range d.Orders {
		for _, style := range styles {
			q := SearchQuery{Order: i, Style: style, Text: d.Orders[i].text(style)}
			q.Body = d.body(&d.Orders[i], q.Text, b)
			out = append(out, q)
		}
	}
	return out
}

// roleOf finds a role by its id.
func roleOf(id string) *searchRole {
	for t := range searchTrades {
		for i := range searchTrades[t].roles {
			if searchTrades[t].roles[i].id == id {
				return &searchTrades[t].roles[i]
			}
		}
	}
	return nil
}

// text writes an order as people do, in one style. Styles use different names for role and shift.
func (o *SearchOrder) text(style string) string {
	role, cert := roleOf(o.Role), ""
	if o.Cert != "" {
		cert = searchCertNames[o.Cert]
	}
	var shift []string
	for _, s := range searchShifts {
		if s.id == o.Shift {
			shift = s.names
		}
	}
	switch style {
	case "client_first":
		out := fmt.Sprintf("%s in %s is asking for %d %s, %s", title(o.Client), o.City, o.Count, plural(role.names[0], o.Count), shift[0])
		if cert != "" {
			out += ", must hold " + cert
		}
		return out
	case "looking":
		out := fmt.Sprintf("Looking for an experienced %s near %s who can work %s", role.names[2], o.City, shift[2])
		if o.Years > 0 {
			out += fmt.Sprintf(" with at least %d years", o.Years)
		}
		if cert != "" {
			out += " and " + cert
		}
		return out
	case "shorthand":
		return strings.ToLower(strings.TrimSpace(fmt.Sprintf("%dx %s %s %s %s", o.Count, role.names[1], o.City, shift[1], cert)))
	}
	// The style need is the one that is left.
	out := fmt.Sprintf("Need %d %s in %s for %s", o.Count, plural(role.names[0], o.Count), o.City, shift[1])
	if cert != "" {
		out += ", " + cert + " required"
	}
	return out
}

// title makes the first letter a capital.
func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// plural adds an s unless n is 1. All nouns of the data take one.
func plural(s string, n int) string {
	if n == 1 {
		return s
	}
	return s + "s"
}

// searchGate has the conditions that a row must meet, as the REST door takes them.
type searchGate struct {
	// Roles are the roles of which a row must have one.
	Roles []string `json:"roles,omitempty"`
	// Credentials are those of which a row must have all, valid at ValidAt.
	Credentials []string `json:"credentials_all,omitempty"`
	ValidAt     string   `json:"valid_at,omitempty"`
	// Client is the company that must not have blocked the row.
	Client string `json:"client,omitempty"`
	// Filter is an expression over the fields and Params, as p.
	Filter string         `json:"filter,omitempty"`
	Params map[string]any `json:"params,omitempty"`
}

// searchJudge says by which ruleset rows are judged, and with which parameters.
type searchJudge struct {
	Ruleset string         `json:"ruleset"`
	Params  map[string]any `json:"params,omitempty"`
}

// searchBody is a search, as the REST door takes it.
type searchBody struct {
	// Collection is the collection that is searched.
	Collection string `json:"collection"`
	// Text is the query in words.
	Text string `json:"query_text"`
	// K is the number of rows that are wanted.
	K int `json:"k"`
	// Gate and Judge are left out where a body has none.
	Gate  *searchGate  `json:"gate,omitempty"`
	Judge *searchJudge `json:"judge,omitempty"`
}

// body writes a search for an order.
func (d *SearchData) body(o *SearchOrder, text string, b SearchBodies) []byte {
	doc := searchBody{Collection: b.Collection, Text: text, K: b.K}
	if doc.Collection == "" {
		doc.Collection = "workers"
	}
	if doc.K == 0 {
		doc.K = 10
	}
	if b.Gated {
		doc.Gate = &searchGate{
			Roles: []string{o.Role}, ValidAt: d.Options.Now.Format("2006-01-02T15:04:05Z07:00"), Client: o.Client,
			Filter: "status == 'available' && km(home, p.site) <= p.radius", Params: map[string]any{"site": o.Site, "radius": 4 * searchRadius},
		}
		if o.Cert != "" {
			doc.Gate.Credentials = []string{o.Cert}
		}
	}
	if b.Ruleset != "" {
		doc.Judge = &searchJudge{Ruleset: b.Ruleset, Params: map[string]any{"shift": o.Shift, "min_years": o.Years, "site": o.Site}}
	}
	return mustJSON(doc)
}

// searchRule is a rule of a ruleset, as the REST door takes it.
type searchRule struct {
	// ID names the rule in answers.
	ID string `json:"id"`
	// When is a condition in CEL over the fields of a row.
	When string `json:"when"`
	// Severity says what a row that meets it gets: a block, a condition, a penalty or a bonus.
	Severity string `json:"severity"`
	// Weight is what a penalty takes and a bonus gives.
	Weight float64 `json:"weight,omitempty"`
	// Reason is told with the row.
	Reason string `json:"reason,omitempty"`
}

// searchRules are one rule of each severity, and one with the time.
func searchRules() []searchRule {
	return []searchRule{
		{ID: "unreliable", When: "reliability < 0.45", Severity: "block", Reason: "misses too many assignments"},
		{ID: "new", When: "years < params.min_years", Severity: "conditional", Reason: "less experience than asked for"},
		{ID: "far", When: "km(home, params.site) > 60.0", Severity: "penalty", Weight: 0.2, Reason: "lives more than 60 km away"},
		{ID: "shift", When: "shift == params.shift", Severity: "bonus", Weight: 0.1, Reason: "wants this shift"},
		{ID: "stale", When: "now - last_seen > duration('2160h')", Severity: "penalty", Weight: 0.1, Reason: "not heard of for 90 days"},
	}
}

// SearchRules are five rules that fit the bodies, as a body of PUT /v1/rulesets/{name}.
func SearchRules(collection string) []byte {
	return mustJSON(map[string]any{"collection": collection, "rules": searchRules()})
}

// interpretedRules are the same rules in a form that servers leave to the interpreter of CEL.
func interpretedRules(collection string) []byte {
	rules := searchRules()
	for i := range rules {
		// The compiler of rules leaves this form to the interpreter; the result is the same.
		rules[i].When = "[" + rules[i].When + "].exists(x, x)"
	}
	return mustJSON(map[string]any{"collection": collection, "rules": rules})
}

// SearchCollection is the definition of the collection of workers, as a body of PUT /v1/collections/{name}.
func SearchCollection() []byte {
	// field is one field of the schema; an empty gate says that no condition of the gate is about
	// it.
	type field struct {
		Name  string `json:"name"`
		Type  string `json:"type"`
		Index bool   `json:"index"`
		Gate  string `json:"gate,omitempty"`
	}
	return mustJSON(map[string]any{
		"text_fields": []map[string]any{{"name": "text"}},
		"schema": []field{
			{"role", "keyword", true, "role"},
			{"family", "keyword", true, ""},
			{"years", "int", true, ""},
			{"city", "keyword", true, ""},
			{"home", "geo", true, ""},
			{"shift", "keyword", true, ""},
			{"pay", "float", true, ""},
			{"certs", "credentials", true, "credential"},
			{"reliability", "float", true, ""},
			{"blocked", "keywords", true, "block"},
			{"status", "keyword", true, ""},
			{"last_seen", "time", true, ""},
			{"synthetic", "bool", false, ""},
			{"text", "text", false, ""},
		},
	})
}

// EmbedBodies returns bodies of POST /v1/embed with the texts of the queries.
func EmbedBodies(queries []SearchQuery) [][]byte {
	out := make([][]byte, len(queries))
	for i, q := range queries {
		out[i] = mustJSON(map[string]any{"text": q.Text, "kind": "query"})
	}
	return out
}
