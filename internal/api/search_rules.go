package api

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

// rulesetName reads NAME or NAME@VERSION; version 0 is the newest.
// Errors: Invalid for a name that could not be one, and for version 0, which no ruleset has.
func rulesetName(field, s string) (name string, version uint32, fact core.Fact) {
	name, number, versioned := strings.Cut(s, "@")
	if fact = edge.SpaceName(field, name); fact != nil {
		return "", 0, fact
	}
	if !versioned {
		return name, 0, nil
	}
	n, wrong := strictjson.ParseUnsigned(number)
	if wrong != "" || n == 0 || n > math.MaxUint32 {
		return "", 0, edge.Invalid(field, "must name a version, such as staffing@7")
	}
	return name, uint32(n), nil
}

// showRuleset writes the name of a version.
func showRuleset(name string, version uint32) string {
	return name + "@" + strconv.FormatUint(uint64(version), 10)
}

// PutRuleset publishes a version of a ruleset in the namespace's first partition, when it compiles.
// The newest rules again are the version that there is. Errors: SearchInvalid names rule, line and
// column of what does not compile; NotFound without the collection. A number that is
// not the next one is refused.
func (ss *SearchService) PutRuleset(ctx context.Context, in *pb.PutRulesetRequest) (*pb.PutRulesetResponse, error) {
	name, version, fact := rulesetName("ruleset", in.GetRuleset())
	if fact != nil {
		return nil, fact
	}
	// The version may be named twice, in the name and as a number, if both are the same.
	if in.GetNumber() != 0 {
		if version != 0 && version != in.GetNumber() {
			return nil, edge.Invalid("number", "must be the same version as in the ruleset's name")
		}
		version = in.GetNumber()
	}
	rules, fact := ss.s.rules(in.GetRules())
	if fact != nil {
		return nil, fact
	}
	c, err := ss.ofCollection(ctx, in.GetCollection())
	if err != nil {
		return nil, err
	}
	// Rules are compiled before they are proposed: where another node leads, that is left to it.
	if away := c.t.elsewhere(c.t.part); away != nil {
		return nil, away
	}
	info, _, err := ss.search.Collection(ctx, c.t.part, in.GetCollection(), core.ReadOptions{})
	if err != nil {
		return nil, err
	}
	if fact := ss.search.CheckRules(&info.Collection, rules); fact != nil {
		return nil, fact
	}
	// As the log and the store keep them, so that the bound is of what is kept.
	stored := core.AppendRules(nil, &core.RulesetRules{Collection: in.GetCollection(), Rules: rules})
	if len(stored) > core.MaxRulesetBytes {
		return nil, edge.TooLarge("rules", "ruleset_bytes", core.MaxRulesetBytes)
	}
	r, at, err := c.proposeOp(ctx, &core.RulesetPut{Name: name, Version: version, Rules: stored})
	if err != nil {
		return nil, err
	}
	return &pb.PutRulesetResponse{Number: uint32(r.Version), Replayed: r.Replayed, At: ShowAt(at)}, nil
}

// rules reads rules, all but what compiling finds.
// Severities and what is done without a value are closed sets, which their texts name.
func (s *Server) rules(in []*pb.Rule) ([]core.Rule, core.Fact) {
	if int64(len(in)) > s.Limits.RulesetRules {
		return nil, edge.TooLarge("rules", "ruleset_rules", s.Limits.RulesetRules)
	}
	if len(in) == 0 {
		return nil, edge.Invalid("rules", "must not be empty")
	}
	out := make([]core.Rule, len(in))
	for i, r := range in {
		at := edge.Item("rules", i)
		switch r.GetSeverity() {
		case "block", "conditional", "penalty", "bonus":
		default:
			return nil, edge.Invalid(at+".severity", "must be one of block, conditional, penalty, bonus")
		}
		switch r.GetOnMissing() {
		case "", "block", "conditional", "ignore":
		default:
			return nil, edge.Invalid(at+".on_missing", "must be one of block, conditional, ignore")
		}
		if w := r.GetWeight(); math.IsNaN(w) || w < 0 || w > 2 {
			return nil, edge.Invalid(at+".weight", "must be from 0 to 2")
		}
		out[i] = core.Rule{
			ID: r.GetId(), When: r.GetWhen(), Severity: r.GetSeverity(), Weight: r.GetWeight(), Reason: r.GetReason(), OnMissing: r.GetOnMissing(),
		}
	}
	return out, nil
}

// GetRuleset reads a version of a ruleset.
// Without a version it is the newest. Errors: NotFound.
func (ss *SearchService) GetRuleset(ctx context.Context, in *pb.GetRulesetRequest) (*pb.GetRulesetResponse, error) {
	name, version, fact := rulesetName("ruleset", in.GetRuleset())
	if fact != nil {
		return nil, fact
	}
	c, err := ss.begin(ctx, false)
	if err != nil {
		return nil, noCollection(err, "ruleset", name)
	}
	r, at, err := ss.search.Ruleset(ctx, c.t.part, name, version, readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	rules, err := core.DecodeRules(r.Rules)
	if err != nil {
		return nil, err
	}
	out := &pb.GetRulesetResponse{Ruleset: showRuleset(name, r.Version), Collection: rules.Collection, At: ShowAt(at)}
	for _, u := range rules.Rules {
		out.Rules = append(out.Rules, &pb.Rule{
			Id: u.ID, When: u.When, Severity: u.Severity, Weight: u.Weight, Reason: u.Reason, OnMissing: u.OnMissing,
		})
	}
	return out, nil
}

// ListRulesets lists rulesets by name.
// All of them in one answer, each in its newest version.
func (ss *SearchService) ListRulesets(ctx context.Context, in *pb.ListRulesetsRequest) (*pb.ListRulesetsResponse, error) {
	c, err := ss.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.ListRulesetsResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	all, at, err := ss.search.Rulesets(ctx, c.t.part, readOptions(0, in.GetStale()))
	if err != nil {
		return nil, err
	}
	out := &pb.ListRulesetsResponse{At: ShowAt(at)}
	for _, r := range all {
		out.Rulesets = append(out.Rulesets, showRuleset(r.Name, r.Version))
	}
	return out, nil
}

// DeleteRuleset removes a ruleset with all its versions.
// Searches that name it are refused from then on. One that is not there counts as removed.
func (ss *SearchService) DeleteRuleset(ctx context.Context, in *pb.DeleteRulesetRequest) (*pb.DeleteRulesetResponse, error) {
	name, version, fact := rulesetName("ruleset", in.GetRuleset())
	if fact == nil && version != 0 {
		fact = edge.Invalid("ruleset", "must be a name without a version: all versions are removed")
	}
	if fact != nil {
		return nil, fact
	}
	c, err := ss.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.DeleteRulesetResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	if fact := ss.s.removes("ruleset"); fact != nil {
		return nil, fact
	}
	r, at, err := c.proposeOp(ctx, &core.RulesetDelete{Name: name})
	if err != nil {
		return nil, err
	}
	return &pb.DeleteRulesetResponse{Existed: r.Existed, At: ShowAt(at)}, nil
}

// A search id is the uid of its collection and a number drawn at random, as 32 hexadecimal digits.

// showSearchID writes a search id.
func showSearchID(uid, id uint64) string {
	return hex.EncodeToString(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uid), id))
}

// searchID reads what showSearchID wrote. ok is false for any other text, such as one in capitals: an
// id has one form.
func searchID(s string) (uid, id uint64, ok bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 16 || s != strings.ToLower(s) {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), true
}

// record keeps a search and its answer, and returns when they are durable.
// It is kept in the first partition, for the time that the node keeps recordings. Errors: TooLarge,
// and those of a proposal.
func (f *Found) record(ctx context.Context, in *pb.SearchRequest) error {
	c, def := f.call, f.def
	// Never 0, which means none.
	id := c.s.o.Rand.Uint64() | 1
	var w strictjson.Writer
	w.Open('{')
	writeRecording(&w, in, f)
	w.Close('}')
	op := &core.RecordingPut{Collection: def.Name, UID: def.UID, ID: id, Data: w.B}
	if len(op.Data) > core.MaxRecordingBytes {
		return edge.TooLarge("record", "recording_bytes", core.MaxRecordingBytes)
	}
	// At the leader, wherever that is: a search is answered by any node, so it must not send its caller
	// away for the recording.
	end := c.s.forward(ctx, c.t.part, []core.Commit{c.t.commitIn(c.t.part, []core.Op{op})})
	switch {
	case end.Err != nil:
		return end.Err
	case end.Results[0].Refusal != nil:
		return end.Results[0].Refusal.Fact
	}
	f.Response.SearchId = showSearchID(def.UID, id)
	return nil
}

// GetRecording reads a kept search.
// Its data is JSON as writeRecording made it. Errors: NotFound for any id that is none; Denied where
// it would tell of protected fields.
func (ss *SearchService) GetRecording(ctx context.Context, in *pb.GetRecordingRequest) (*pb.GetRecordingResponse, error) {
	unknown := core.NotFound{Kind: "recording", ID: core.Cut(in.GetSearchId(), NameBytes)}
	uid, id, ok := searchID(in.GetSearchId())
	c, err := ss.begin(ctx, false)
	if edge.UnknownNamespace(err) || err == nil && !ok {
		return nil, unknown
	}
	if err != nil {
		return nil, err
	}
	r, at, err := ss.search.Recording(ctx, c.t.part, uid, id, core.ReadOptions{})
	if edge.Is[core.NotFound](err) {
		return nil, unknown
	}
	if err != nil {
		return nil, err
	}
	// Whether it may be read depends on its collection, which the uid names.
	if err := c.mayReadRecording(ctx, uid); err != nil {
		return nil, err
	}
	return &pb.GetRecordingResponse{
		SearchId: in.GetSearchId(), RecordedAt: timestamppb.New(r.At.Time()), ExpiresAt: timestamppb.New(r.Expires.Time()), Recording: r.Data, At: ShowAt(at),
	}, nil
}
