package rest

import (
	"strconv"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
)

func writeCollection(w *jsonWriter, c *pb.Collection) {
	w.Str("name", c.GetName())
	w.Str("embedder", c.GetEmbedder())
	w.Str("model", c.GetModel())
	w.Count("dim", uint64(c.GetDim()))
	w.Str("metric", wordOf(metricWords, int32(c.GetMetric())))
	w.List("text_fields", len(c.GetTextFields()), func(i int) {
		w.Open('{')
		w.Str("name", c.GetTextFields()[i].GetName())
		w.Real("weight", c.GetTextFields()[i].GetWeight())
		w.Close('}')
	})
	w.List("schema", len(c.GetSchema()), func(i int) {
		f := c.GetSchema()[i]
		w.Open('{')
		w.Str("name", f.GetName())
		w.Str("type", wordOf(fieldTypeWords, int32(f.GetType())))
		w.Bool("index", f.GetIndex())
		w.OptStr("gate", wordOf(fieldGateWords, int32(f.GetGate())))
		w.OptBool("protected", f.GetProtected())
		w.Close('}')
	})
	w.OptInt("max_points", c.GetMaxPoints())
}

func writeUpsertResult(w *jsonWriter, r *pb.UpsertResult) {
	w.OptStr("version", r.GetVersion())
	w.OptBool("existed", r.GetExisted())
	w.OptBool("truncated", r.GetTruncated())
	writeItemError(w, r.GetError())
}

// writeItemError is the error of one item of many, left out when there is none.
func writeItemError(w *jsonWriter, e *pb.Error) {
	if e != nil {
		writeError(w, e)
	}
}

func writeStoredPoint(w *jsonWriter, p *pb.StoredPoint) {
	w.Str("id", p.GetId())
	w.Str("version", p.GetVersion())
	w.OptFloats("vector", p.GetVector())
	w.JSON("payload", p.GetPayload())
}

func writeRules(w *jsonWriter, rules []*pb.Rule) {
	w.List("rules", len(rules), func(i int) {
		r := rules[i]
		w.Open('{')
		w.Str("id", r.GetId())
		w.Str("when", r.GetWhen())
		w.Str("severity", r.GetSeverity())
		if r.GetWeight() != 0 {
			w.Real("weight", r.GetWeight())
		}
		w.OptStr("reason", r.GetReason())
		w.OptStr("on_missing", r.GetOnMissing())
		w.Close('}')
	})
}

func writeEmbedded(w *jsonWriter, m core.EmbedModel, out []core.Embedding) {
	w.Str("model", m.Model)
	w.Count("dim", uint64(len(out[0].Vector)))
	w.Bool("semantic", m.Semantic)
	w.List("vectors", len(out), func(i int) {
		if e := out[i]; e.Text != nil {
			w.Raw(e.Text.JSON())
		} else {
			w.Floats(e.Vector)
		}
	})
	w.List("tokens", len(out), func(i int) { w.Raw(strconv.AppendInt(nil, int64(out[i].Tokens), 10)) })
	w.List("cached", len(out), func(i int) { w.Raw(strconv.AppendBool(nil, out[i].Cached)) })
	w.List("truncated", len(out), func(i int) { w.Raw(strconv.AppendBool(nil, out[i].Truncated)) })
}

func writeSearch(w *jsonWriter, f *api.Found) {
	out := f.Response
	w.List("results", len(f.Answer.Hits), func(i int) { f.WriteHit(&w.Writer, &f.Answer.Hits[i], f.Query.Payload) })
	api.WriteFound(&w.Writer, out)
	w.OptStr("degraded", out.GetDegraded())
	w.OptStr("search_id", out.GetSearchId())
	t := out.GetTookUs()
	w.Object("took_us", func() {
		w.Count("embed", t.GetEmbed())
		w.Count("gate", t.GetGate())
		w.Count("retrieve", t.GetRetrieve())
		w.Count("judge", t.GetJudge())
		w.Count("merge", t.GetMerge())
	})
	if g := out.GetGap(); g != nil {
		w.Object("gap", func() {
			w.Str("stage", g.GetStage())
			w.List("partitions", len(g.GetPartitions()), func(i int) { w.Raw(strconv.AppendUint(nil, uint64(g.GetPartitions()[i]), 10)) })
			w.Count("unjudged", g.GetUnjudged())
		})
	}
	if n := out.GetPlanNumbers(); n != nil {
		w.Object("plan_numbers", func() {
			w.Count("compared", n.GetCompared())
			w.Count("ef", n.GetEf())
			w.Count("rounds", n.GetRounds())
			w.Count("graph_rows", n.GetGraphRows())
			w.Count("tail_rows", n.GetTailRows())
		})
	}
}
