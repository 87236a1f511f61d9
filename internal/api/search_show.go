package api

import (
	"encoding/base64"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/strictjson"
)

// WriteHit writes a row; with a payload if it may have one.
// payload asks for it; fields that the caller may not see are left out.
func (f *Found) WriteHit(w *strictjson.Writer, h *core.SearchHit, payload bool) {
	w.Open('{')
	w.Str("id", h.ID)
	w.Real("score", h.Score)
	w.Str("verdict", verdictOf(h))
	w.Real("judge_score", h.JudgeScore)
	// Parts and reasons are for those who ask why a row stands where it does.
	if f.Query.Explain {
		w.Object("parts", func() {
			w.Real("dense", h.Dense)
			w.Real("lexical", h.Lexical)
			// Reserved by the contract: nothing boosts yet.
			w.Real("boost", 0)
			w.Real("decay", h.Decay)
		})
		if len(h.Reasons) > 0 {
			w.List("reasons", len(h.Reasons), func(i int) {
				u := &h.Reasons[i]
				w.Open('{')
				w.Str("rule", u.Rule)
				w.Bool("ok", u.OK)
				w.OptStr("reason", u.Reason)
				w.OptBool("missing", u.Missing)
				w.Close('}')
			})
		}
	}
	writeVersion(w, "version", h.Partition, h.Version)
	// A recording has no payloads: it would keep what was removed since.
	if payload {
		w.JSON("payload", f.visible(f.def, h.Payload))
	}
	w.Close('}')
}

// writeVersion writes what showVersion gives.
// It is edge.ShowVersion without a text in between.
func writeVersion(w *strictjson.Writer, name string, partition uint16, version uint64) {
	w.Key(name)
	w.B = append(w.B, '"')
	// 0 is of no partition.
	if version != 0 {
		w.B = append(strconv.AppendUint(w.B, uint64(partition), 10), '/')
	}
	w.B = append(strconv.AppendUint(w.B, version, 10), '"')
	w.Done()
}

// WriteFound writes what a recording keeps of an answer too.
// out has no rows: these are written by WriteHit.
func WriteFound(w *strictjson.Writer, out *pb.SearchResponse) {
	w.Object("gate", func() { writeGateCounts(w, out.GetGate()) })
	if j := out.GetJudge(); j != nil {
		w.Object("judge", func() {
			w.Count("judged", j.GetJudged())
			w.Count("blocked", j.GetBlocked())
			w.Count("conditional", j.GetConditional())
			w.Str("ruleset", j.GetRuleset())
		})
	}
	w.Str("plan", out.GetPlan())
	w.List("at", len(out.GetAt()), func(i int) {
		w.Open('{')
		w.Count("partition", uint64(out.GetAt()[i].GetPartition()))
		w.Exact("index", out.GetAt()[i].GetIndex())
		w.Close('}')
	})
	w.Str("consistency", out.GetConsistency())
	w.OptStr("embedder", out.GetEmbedder())
	w.Bool("semantic", out.GetSemantic())
}

// writeRecording writes what is kept of a search: what was asked for, the vector that was searched with, and the answer
// without payloads.
// The payloads of rows are not kept, and the gate as it was asked for, with its parameters.
func writeRecording(w *strictjson.Writer, in *pb.SearchRequest, f *Found) {
	q := f.Query
	w.Object("request", func() {
		w.Str("collection", in.GetCollection())
		w.OptStr("query_text", in.GetQueryText())
		w.Key("vector")
		w.B = append(w.B, '"')
		// The vector as it was searched with, so that the search can be repeated when the embedder has
		// changed.
		w.B = base64.StdEncoding.AppendEncode(w.B, packFloats(q.Vector))
		w.B = append(w.B, '"')
		w.Done()
		w.Int("k", int64(q.K))
		w.Bool("exact", q.Exact)
		w.Object("gate", func() { writeGate(w, in.GetGate()) })
		// By the name that was asked for; the answer tells the version.
		if j := in.GetJudge(); j != nil {
			w.Object("judge", func() {
				w.Str("ruleset", j.GetRuleset())
				w.JSON("params", j.GetParams())
				w.OptStr("include", j.GetInclude())
			})
		}
		// As it was weighed, with the defaults that the request left open.
		w.Object("merge", func() { writeMerge(w, q) })
	})
	w.List("results", len(f.Answer.Hits), func(i int) { f.WriteHit(w, &f.Answer.Hits[i], false) })
	WriteFound(w, f.Response)
}

// writeGate writes who might be found.
func writeGate(w *strictjson.Writer, g *pb.Gate) {
	w.Strings("roles", g.GetRoles())
	w.OptStr("role_mode", g.GetRoleMode())
	w.Strings("credentials_all", g.GetCredentialsAll())
	writeTime(w, "valid_at", g.GetValidAt())
	w.OptStr("client", g.GetClient())
	w.Strings("ids_in", g.GetIdsIn())
	w.Strings("ids_not_in", g.GetIdsNotIn())
	w.OptStr("filter", g.GetFilter())
	w.JSON("params", g.GetParams())
}

// writeMerge writes how nearness and words were weighed.
// Weights are those that were used.
func writeMerge(w *strictjson.Writer, q *core.SearchQuery) {
	w.Real("dense", q.Dense)
	w.Real("lexical", q.Lexical)
	if q.HasMinScore {
		w.Real("min_score", q.MinScore)
	}
	if q.DecayField != "" {
		w.Object("decay", func() {
			w.Str("field", q.DecayField)
			w.Key("half_life")
			w.Seconds(int64(q.HalfLife))
		})
	}
}

// writeGateCounts writes how many passed a gate.
// They say why rows did not pass, the first reason of each.
func writeGateCounts(w *strictjson.Writer, g *pb.GateCounts) {
	w.Count("considered", g.GetConsidered())
	w.Count("passed", g.GetPassed())
	b := g.GetBlockedBy()
	w.Object("blocked_by", func() {
		w.Count("ids", b.GetIds())
		w.Count("role", b.GetRole())
		w.Count("credential", b.GetCredential())
		w.Count("block", b.GetBlock())
		w.Count("filter", b.GetFilter())
	})
	writeTime(w, "valid_at", g.GetValidAt())
}

// writeTime writes a time in RFC 3339, left out when unset.
func writeTime(w *strictjson.Writer, name string, t *timestamppb.Timestamp) {
	if t != nil {
		w.Time(name, t.AsTime())
	}
}
