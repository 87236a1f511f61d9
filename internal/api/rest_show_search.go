package api

import (
	"encoding/base64"
	"strconv"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// value is a field that is JSON already; left out when empty.
func (w *jsonWriter) value(name string, b []byte) {
	if len(b) > 0 {
		w.key(name)
		w.b = append(w.b, b...)
		w.comma = true
	}
}

// numbers is a vector, within a list or after a key.
func (w *jsonWriter) numbers(v []float32) {
	w.open('[')
	for i, x := range v {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = appendFloat(w.b, float64(x), 32)
	}
	w.close(']')
}

func (w *jsonWriter) optNumbers(name string, v []float32) {
	if len(v) > 0 {
		w.key(name)
		w.numbers(v)
	}
}

// appendFloat writes a number in as few digits as tell it from all others of its size.
func appendFloat(b []byte, x float64, bits int) []byte {
	format := byte('f')
	if x != 0 && (x < 1e-6 && x > -1e-6 || x >= 1e21 || x <= -1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, x, format, -1, bits)
}

func (w *jsonWriter) real(name string, x float64) {
	w.key(name)
	w.b = appendFloat(w.b, x, 64)
	w.comma = true
}

// names is a list of texts, left out when it is empty.
func (w *jsonWriter) names(name string, list []string) {
	if len(list) > 0 {
		w.list(name, len(list), func(i int) { w.quote(list[i]) })
	}
}

func writeCollection(w *jsonWriter, c *pb.Collection) {
	w.str("name", c.GetName())
	w.str("embedder", c.GetEmbedder())
	w.str("model", c.GetModel())
	w.count("dim", uint64(c.GetDim()))
	w.str("metric", wordOf(metricWords, int32(c.GetMetric())))
	w.list("text_fields", len(c.GetTextFields()), func(i int) {
		w.open('{')
		w.str("name", c.GetTextFields()[i].GetName())
		w.real("weight", c.GetTextFields()[i].GetWeight())
		w.close('}')
	})
	w.list("schema", len(c.GetSchema()), func(i int) {
		f := c.GetSchema()[i]
		w.open('{')
		w.str("name", f.GetName())
		w.str("type", wordOf(fieldTypeWords, int32(f.GetType())))
		w.bool("index", f.GetIndex())
		w.optStr("gate", wordOf(fieldGateWords, int32(f.GetGate())))
		w.optBool("protected", f.GetProtected())
		w.close('}')
	})
	w.optInt("max_points", c.GetMaxPoints())
}

func writeUpsertResult(w *jsonWriter, r *pb.UpsertResult) {
	w.optStr("version", r.GetVersion())
	w.optBool("existed", r.GetExisted())
	w.optBool("truncated", r.GetTruncated())
	writeItemError(w, r.GetError())
}

// writeItemError is the error of one item of many, left out when there is none.
func writeItemError(w *jsonWriter, e *pb.Error) {
	if e != nil {
		writeError(w, e)
	}
}

func writeStoredPoint(w *jsonWriter, p *pb.StoredPoint) {
	w.str("id", p.GetId())
	w.str("version", p.GetVersion())
	w.optNumbers("vector", p.GetVector())
	w.value("payload", p.GetPayload())
}

func writeGateCounts(w *jsonWriter, g *pb.GateCounts) {
	w.count("considered", g.GetConsidered())
	w.count("passed", g.GetPassed())
	b := g.GetBlockedBy()
	w.object("blocked_by", func() {
		w.count("ids", b.GetIds())
		w.count("role", b.GetRole())
		w.count("credential", b.GetCredential())
		w.count("block", b.GetBlock())
		w.count("filter", b.GetFilter())
	})
	w.time("valid_at", g.GetValidAt())
}

func writeRules(w *jsonWriter, rules []*pb.Rule) {
	w.list("rules", len(rules), func(i int) {
		r := rules[i]
		w.open('{')
		w.str("id", r.GetId())
		w.str("when", r.GetWhen())
		w.str("severity", r.GetSeverity())
		if r.GetWeight() != 0 {
			w.real("weight", r.GetWeight())
		}
		w.optStr("reason", r.GetReason())
		w.optStr("on_missing", r.GetOnMissing())
		w.close('}')
	})
}

func writeEmbedded(w *jsonWriter, m core.EmbedModel, out []core.Embedding) {
	w.str("model", m.Model)
	w.count("dim", uint64(len(out[0].Vector)))
	w.bool("semantic", m.Semantic)
	w.list("vectors", len(out), func(i int) {
		if e := out[i]; e.Text != nil {
			w.raw(e.Text.JSON())
		} else {
			w.numbers(e.Vector)
		}
	})
	w.list("tokens", len(out), func(i int) { w.raw(strconv.AppendInt(nil, int64(out[i].Tokens), 10)) })
	w.list("cached", len(out), func(i int) { w.raw(strconv.AppendBool(nil, out[i].Cached)) })
	w.list("truncated", len(out), func(i int) { w.raw(strconv.AppendBool(nil, out[i].Truncated)) })
}

// raw is a value that is JSON already, within a list.
func (w *jsonWriter) raw(b []byte) {
	w.sep()
	w.b = append(w.b, b...)
	w.comma = true
}

// writeHit writes a row; with a payload if it may have one.
func (f *foundRows) writeHit(w *jsonWriter, h *core.SearchHit, payload bool) {
	w.open('{')
	w.str("id", h.ID)
	w.real("score", h.Score)
	w.str("verdict", verdictOf(h))
	w.real("judge_score", h.JudgeScore)
	if f.q.Explain {
		w.object("parts", func() {
			w.real("dense", h.Dense)
			w.real("lexical", h.Lexical)
			w.real("boost", 0)
			w.real("decay", h.Decay)
		})
		if len(h.Reasons) > 0 {
			w.list("reasons", len(h.Reasons), func(i int) {
				u := &h.Reasons[i]
				w.open('{')
				w.str("rule", u.Rule)
				w.bool("ok", u.OK)
				w.optStr("reason", u.Reason)
				w.optBool("missing", u.Missing)
				w.close('}')
			})
		}
	}
	w.version("version", h.Partition, h.Version)
	if payload {
		w.value("payload", f.visible(f.def, h.Payload))
	}
	w.close('}')
}

// version is what showVersion gives.
func (w *jsonWriter) version(name string, partition uint16, version uint64) {
	w.key(name)
	w.b = append(w.b, '"')
	if version != 0 {
		w.b = append(strconv.AppendUint(w.b, uint64(partition), 10), '/')
	}
	w.b = append(strconv.AppendUint(w.b, version, 10), '"')
	w.comma = true
}

// writeFound writes what a recording keeps of an answer too.
func writeFound(w *jsonWriter, out *pb.SearchResponse) {
	w.object("gate", func() { writeGateCounts(w, out.GetGate()) })
	if j := out.GetJudge(); j != nil {
		w.object("judge", func() {
			w.count("judged", j.GetJudged())
			w.count("blocked", j.GetBlocked())
			w.count("conditional", j.GetConditional())
			w.str("ruleset", j.GetRuleset())
		})
	}
	w.str("plan", out.GetPlan())
	w.list("at", len(out.GetAt()), func(i int) {
		w.open('{')
		w.count("partition", uint64(out.GetAt()[i].GetPartition()))
		w.exact("index", out.GetAt()[i].GetIndex())
		w.close('}')
	})
	w.str("consistency", out.GetConsistency())
	w.optStr("embedder", out.GetEmbedder())
	w.bool("semantic", out.GetSemantic())
}

func writeSearch(w *jsonWriter, f *foundRows) {
	out := f.out
	w.list("results", len(f.answer.Hits), func(i int) { f.writeHit(w, &f.answer.Hits[i], f.q.Payload) })
	writeFound(w, out)
	w.optStr("degraded", out.GetDegraded())
	w.optStr("search_id", out.GetSearchId())
	t := out.GetTookUs()
	w.object("took_us", func() {
		w.count("embed", t.GetEmbed())
		w.count("gate", t.GetGate())
		w.count("retrieve", t.GetRetrieve())
		w.count("judge", t.GetJudge())
		w.count("merge", t.GetMerge())
	})
	if g := out.GetGap(); g != nil {
		w.object("gap", func() {
			w.str("stage", g.GetStage())
			w.list("partitions", len(g.GetPartitions()), func(i int) { w.raw(strconv.AppendUint(nil, uint64(g.GetPartitions()[i]), 10)) })
			w.count("unjudged", g.GetUnjudged())
		})
	}
	if n := out.GetPlanNumbers(); n != nil {
		w.object("plan_numbers", func() {
			w.count("compared", n.GetCompared())
			w.count("ef", n.GetEf())
			w.count("rounds", n.GetRounds())
			w.count("graph_rows", n.GetGraphRows())
			w.count("tail_rows", n.GetTailRows())
		})
	}
}

// writeRecording writes what is kept of a search: what was asked for, the vector that was searched with, and the answer
// without payloads.
func writeRecording(w *jsonWriter, in *pb.SearchRequest, f *foundRows) {
	q := f.q
	w.object("request", func() {
		w.str("collection", in.GetCollection())
		w.optStr("query_text", in.GetQueryText())
		w.key("vector")
		w.b = append(w.b, '"')
		w.b = base64.StdEncoding.AppendEncode(w.b, packFloats(q.Vector))
		w.b = append(w.b, '"')
		w.comma = true
		w.int("k", int64(q.K))
		w.bool("exact", q.Exact)
		w.object("gate", func() { writeGate(w, in.GetGate()) })
		if j := in.GetJudge(); j != nil {
			w.object("judge", func() {
				w.str("ruleset", j.GetRuleset())
				w.value("params", j.GetParams())
				w.optStr("include", j.GetInclude())
			})
		}
		w.object("merge", func() { writeMerge(w, q) })
	})
	w.list("results", len(f.answer.Hits), func(i int) { f.writeHit(w, &f.answer.Hits[i], false) })
	writeFound(w, f.out)
}

func writeGate(w *jsonWriter, g *pb.Gate) {
	w.names("roles", g.GetRoles())
	w.optStr("role_mode", g.GetRoleMode())
	w.names("credentials_all", g.GetCredentialsAll())
	w.time("valid_at", g.GetValidAt())
	w.optStr("client", g.GetClient())
	w.names("ids_in", g.GetIdsIn())
	w.names("ids_not_in", g.GetIdsNotIn())
	w.optStr("filter", g.GetFilter())
	w.value("params", g.GetParams())
}

func writeMerge(w *jsonWriter, q *core.SearchQuery) {
	w.real("dense", q.Dense)
	w.real("lexical", q.Lexical)
	if q.HasMinScore {
		w.real("min_score", q.MinScore)
	}
	if q.DecayField != "" {
		w.object("decay", func() {
			w.str("field", q.DecayField)
			w.key("half_life")
			w.seconds(int64(q.HalfLife))
		})
	}
}
