package rest

import (
	"math"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// Repositories and refs as JSON.

var (
	repoStateWords = []string{"ready", "importing", "archived"}
	denyWords      = []string{"", "create", "update", "delete", "force"}
	onlyWords      = []string{"any", "api", "push", "effects"}
	refTypeWords   = []string{"", "commit", "tree", "blob", "tag"}
	refKindWords   = []string{
		"", "create", "update", "delete", "verify", "symref_create", "symref_update", "symref_delete", "symref_verify",
	}
)

const (
	maxRESTTexts = 1000 // of a list of names or globs
)

func readTexts(d *jsonReader) (out []string) {
	d.Array("texts", maxRESTTexts, func() { out = append(out, d.Text()) })
	return out
}

var refRuleFields = []jsonField[pb.RefRule]{
	{"refs", func(d *jsonReader, m *pb.RefRule) { m.Refs = d.Text() }},
	{"deny", func(d *jsonReader, m *pb.RefRule) {
		d.Array("deny", int64(len(denyWords)), func() { m.Deny = append(m.Deny, pb.RefRule_Deny(d.OneOf(denyWords))) })
	}},
	{"except", func(d *jsonReader, m *pb.RefRule) { m.Except = readTexts(d) }},
	{"only", func(d *jsonReader, m *pb.RefRule) { m.Only = pb.RefRule_Only(d.OneOf(onlyWords)) }},
	{"queue", func(d *jsonReader, m *pb.RefRule) { m.Queue = d.Text() }},
}

var repoConfigFields = []jsonField[pb.RepoConfig]{
	{"version", func(d *jsonReader, m *pb.RepoConfig) { m.Version = d.Unsigned() }},
	{"state", func(d *jsonReader, m *pb.RepoConfig) { m.State = pb.Repo_State(d.OneOf(repoStateWords)) }},
	{"hide", func(d *jsonReader, m *pb.RepoConfig) { m.Hide = readTexts(d) }},
	{"rules", func(d *jsonReader, m *pb.RepoConfig) {
		d.Array("rules", core.MaxRepoRules, func() { m.Rules = append(m.Rules, readNew(d, refRuleFields)) })
	}},
	{"reflog_days", func(d *jsonReader, m *pb.RepoConfig) { m.ReflogDays = d.Int32() }},
	{"reflog_max", func(d *jsonReader, m *pb.RepoConfig) { m.ReflogMax = d.Int32() }},
	{"max_bytes", func(d *jsonReader, m *pb.RepoConfig) { m.MaxBytes = d.Integer(math.MinInt64, math.MaxInt64) }},
	{"max_push", func(d *jsonReader, m *pb.RepoConfig) { m.MaxPush = d.Integer(math.MinInt64, math.MaxInt64) }},
}

var createRepoFields = []jsonField[pb.CreateRepoRequest]{
	{"name", func(d *jsonReader, m *pb.CreateRepoRequest) { m.Name = d.Text() }},
	{"tag", func(d *jsonReader, m *pb.CreateRepoRequest) { m.Tag = d.Filled() }},
	{"default_branch", func(d *jsonReader, m *pb.CreateRepoRequest) { m.DefaultBranch = d.Filled() }},
	{"config", func(d *jsonReader, m *pb.CreateRepoRequest) { m.Config = readNew(d, repoConfigFields) }},
	{"request_id", func(d *jsonReader, m *pb.CreateRepoRequest) { m.RequestId = d.requestID() }},
}

var updateRepoFields = []jsonField[pb.UpdateRepoRequest]{
	{"config", func(d *jsonReader, m *pb.UpdateRepoRequest) { m.Config = readNew(d, repoConfigFields) }},
	{"default_branch", func(d *jsonReader, m *pb.UpdateRepoRequest) { m.DefaultBranch = d.Filled() }},
}

var undeleteRepoFields = []jsonField[pb.UndeleteRepoRequest]{
	{"id", func(d *jsonReader, m *pb.UndeleteRepoRequest) { m.Id = d.Filled() }},
}

var batchRefFields = []jsonField[pb.BatchGetRefsRequest]{
	{"names", func(d *jsonReader, m *pb.BatchGetRefsRequest) { m.Names = readTexts(d) }},
	{"peel", func(d *jsonReader, m *pb.BatchGetRefsRequest) { m.Peel = d.Boolean() }},
}

var refChangeFields = []jsonField[pb.RefChange]{
	{"kind", func(d *jsonReader, m *pb.RefChange) { m.Kind = pb.RefChange_Kind(d.OneOf(refKindWords)) }},
	{"name", func(d *jsonReader, m *pb.RefChange) { m.Name = d.Text() }},
	{"old", func(d *jsonReader, m *pb.RefChange) { m.Old = new(d.Text()) }},
	{"new", func(d *jsonReader, m *pb.RefChange) { m.New = d.Text() }},
	{"target", func(d *jsonReader, m *pb.RefChange) { m.Target = d.Text() }},
	{"old_target", func(d *jsonReader, m *pb.RefChange) { m.OldTarget = new(d.Text()) }},
	{"no_deref", func(d *jsonReader, m *pb.RefChange) { m.NoDeref = d.Boolean() }},
	{"missing_ok", func(d *jsonReader, m *pb.RefChange) { m.MissingOk = d.Boolean() }},
	{"message", func(d *jsonReader, m *pb.RefChange) { m.Message = d.Text() }},
}

func readRefChanges(d *jsonReader) (out []*pb.RefChange) {
	d.Array("ref_changes", core.MaxRefChanges, func() { out = append(out, readNew(d, refChangeFields)) })
	return out
}

var refTransactionFields = []jsonField[pb.RefTransaction]{
	{"repo", func(d *jsonReader, m *pb.RefTransaction) { m.Repo = d.Text() }},
	{"changes", func(d *jsonReader, m *pb.RefTransaction) { m.Changes = readRefChanges(d) }},
	{"message", func(d *jsonReader, m *pb.RefTransaction) { m.Message = d.Text() }},
	{"tag", func(d *jsonReader, m *pb.RefTransaction) { m.Tag = d.Filled() }},
}

var updateRefsFields = []jsonField[pb.UpdateRefsRequest]{
	{"changes", func(d *jsonReader, m *pb.UpdateRefsRequest) { m.Changes = readRefChanges(d) }},
	{"conditions", func(d *jsonReader, m *pb.UpdateRefsRequest) { m.Conditions = readConditions(d) }},
	{"request_id", func(d *jsonReader, m *pb.UpdateRefsRequest) { m.RequestId = d.requestID() }},
	{"message", func(d *jsonReader, m *pb.UpdateRefsRequest) { m.Message = d.Text() }},
	{"allow_partial", func(d *jsonReader, m *pb.UpdateRefsRequest) { m.AllowPartial = d.Boolean() }},
}

func writeTexts(w *jsonWriter, name string, list []string) {
	if len(list) == 0 {
		return
	}
	w.List(name, len(list), func(i int) {
		w.Sep()
		w.Quote(list[i])
	})
}

func writeRepo(w *jsonWriter, r *pb.Repo) {
	w.Str("name", r.GetName())
	w.Str("id", r.GetId())
	w.OptStr("tag", r.GetTag())
	w.Object("config", func() { writeRepoConfig(w, r.GetConfig()) })
	w.OptStr("default_branch", r.GetDefaultBranch())
	w.time("created_at", r.GetCreatedAt())
	w.OptStr("created_by", r.GetCreatedBy())
	w.time("deleted_at", r.GetDeletedAt())
	w.Exact("rev", r.GetRev())
	w.Int("refs", r.GetRefs())
	w.Int("packs", r.GetPacks())
	w.Int("bytes", r.GetBytes())
}

func writeRepoConfig(w *jsonWriter, c *pb.RepoConfig) {
	w.Exact("version", c.GetVersion())
	w.Str("state", wordOf(repoStateWords, int32(c.GetState())))
	writeTexts(w, "hide", c.GetHide())
	if len(c.GetRules()) > 0 {
		w.List("rules", len(c.GetRules()), func(i int) {
			r := c.GetRules()[i]
			w.Open('{')
			w.Str("refs", r.GetRefs())
			deny := make([]string, len(r.GetDeny()))
			for i, d := range r.GetDeny() {
				deny[i] = wordOf(denyWords, int32(d))
			}
			writeTexts(w, "deny", deny)
			writeTexts(w, "except", r.GetExcept())
			w.Str("only", wordOf(onlyWords, int32(r.GetOnly())))
			w.OptStr("queue", r.GetQueue())
			w.Close('}')
		})
	}
	w.OptInt("reflog_days", int64(c.GetReflogDays()))
	w.OptInt("reflog_max", int64(c.GetReflogMax()))
	w.OptInt("max_bytes", c.GetMaxBytes())
	w.OptInt("max_push", c.GetMaxPush())
}

func writeRef(w *jsonWriter, r *pb.Ref) {
	w.Str("name", r.GetName())
	w.OptStr("id", r.GetId())
	w.OptStr("type", wordOf(refTypeWords, int32(r.GetType())))
	w.OptStr("peeled", r.GetPeeled())
	w.OptStr("target", r.GetTarget())
	w.Exact("rev", r.GetRev())
}

func writeRefs(w *jsonWriter, refs []*pb.Ref) {
	w.List("refs", len(refs), func(i int) {
		w.Open('{')
		writeRef(w, refs[i])
		w.Close('}')
	})
}

func writeChanged(w *jsonWriter, list []*pb.RefChanged) {
	w.List("results", len(list), func(i int) {
		r := list[i]
		w.Open('{')
		w.OptStr("old", r.GetOld())
		w.OptStr("new", r.GetNew())
		if e := r.GetError(); e != nil {
			writeError(w, e)
		}
		w.Close('}')
	})
}

// writeMoved shows what became of a transaction of refs within a commit.
func writeMoved(w *jsonWriter, m *pb.RefsMoved) {
	if m == nil {
		return
	}
	w.Object("refs", func() {
		w.List("changes", len(m.GetChanges()), func(i int) {
			w.Open('{')
			w.OptStr("old", m.GetChanges()[i].GetOld())
			w.OptStr("new", m.GetChanges()[i].GetNew())
			w.Close('}')
		})
		w.Exact("rev", m.GetRev())
	})
}

func writeLogEntry(w *jsonWriter, e *pb.RefLogEntry) {
	w.OptStr("old", e.GetOld())
	w.OptStr("new", e.GetNew())
	w.OptStr("old_target", e.GetOldTarget())
	w.OptStr("new_target", e.GetNewTarget())
	w.Str("principal", e.GetPrincipal())
	w.Str("cause", e.GetCause())
	w.OptStr("request", e.GetRequest())
	w.OptStr("task", e.GetTask())
	if e.GetToken() != 0 {
		w.Exact("token", e.GetToken())
	}
	w.OptStr("message", e.GetMessage())
	w.time("time", e.GetTime())
	w.Exact("index", e.GetIndex())
	w.Exact("rev", e.GetRev())
}

// writeFailures shows why a transaction of refs was refused, change by change.
func writeFailures(w *jsonWriter, list []*pb.Failure) {
	if len(list) == 0 {
		return
	}
	w.List("failures", len(list), func(i int) {
		f := list[i]
		w.Open('{')
		w.Int("change", int64(f.GetChange()))
		w.Str("code", f.GetCode())
		w.OptStr("reason", f.GetReason())
		w.Str("message", f.GetMessage())
		if len(f.GetDetails()) > 0 {
			w.Texts("details", f.GetDetails())
		}
		w.Close('}')
	})
}
