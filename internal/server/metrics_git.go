package server

import (
	"github.com/millrace/millrace/internal/githttp"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/obs"
)

// gitView is what the metrics of git are read from: the edge, and the area of packs.
type gitView struct {
	edge    githttp.Stats
	objects gitobj.Stats
}

// viewGit reads both; false if git is not served.
func (a *admin) viewGit() (v gitView, ok bool) {
	p := a.parts.Load()
	if p == nil || p.git == nil {
		return v, false
	}
	return gitView{p.git.Stats(), p.objects.Stats()}, true
}

// gitMetrics are those of git clients and of packs.
func gitMetrics() []obs.Metric[gitView] {
	phase := func(name, help string, read func(githttp.PhaseStats) float64) obs.Metric[gitView] {
		return obs.Metric[gitView]{
			Name: name, Help: help, Labels: []string{"phase"}, Bound: 8,
			Values: func(v gitView, put func(float64, ...string)) {
				for _, p := range v.edge.Phases {
					put(read(p), p.Name)
				}
			},
		}
	}
	outcome := func(name, help, label string, read func(githttp.Stats) map[string]uint64) obs.Metric[gitView] {
		return obs.Metric[gitView]{
			Name: name, Help: help, Labels: []string{label}, Bound: 8,
			Values: func(v gitView, put func(float64, ...string)) {
				for k, n := range read(v.edge) {
					put(float64(n), k)
				}
			},
		}
	}
	return []obs.Metric[gitView]{
		outcome("millrace_githttp_requests_total", "Requests of git clients that were taken on, by what they are", "request", func(s githttp.Stats) map[string]uint64 {
			return map[string]uint64{"advertise": s.Advertised, "ls-refs": s.Lists, "fetch": s.Fetches, "push": s.Pushes}
		}),
		outcome("millrace_githttp_refused_total", "Requests of git clients that were refused, by why", "why", func(s githttp.Stats) map[string]uint64 {
			return map[string]uint64{"denied": s.Denied, "missing": s.Missing, "limit": s.Limited, "unavailable": s.Unavailable, "other": s.Other}
		}),
		outcome("millrace_githttp_commits_total", "Commits of pushes, by outcome", "outcome", func(s githttp.Stats) map[string]uint64 {
			return map[string]uint64{"landed": s.Landed, "rejected": s.Rejected, "unknown": s.Unknown}
		}),
		phase("millrace_githttp_push_phase_count_total", "Pushes that went through a phase", func(p githttp.PhaseStats) float64 { return float64(p.Count) }),
		phase("millrace_githttp_push_phase_seconds_total", "How long they took for it, all together", func(p githttp.PhaseStats) float64 { return float64(p.Micros) / 1e6 }),
		figure("millrace_gitobj_children_total", "Programs run for git clients", func(v gitView) uint64 { return v.objects.Children }),
		figure("millrace_gitobj_children_failed_total", "Those that refused what they were given, or were ended", func(v gitView) uint64 { return v.objects.ChildrenFailed }),
		figure("millrace_gitobj_running_calls", "Programs that run now", func(v gitView) int { return v.objects.Running }),
		figure("millrace_gitobj_waiting_calls", "Calls that wait until they may run a program", func(v gitView) int { return v.objects.Waiting }),
		figure("millrace_gitobj_packs_total", "Packs that were made durable", func(v gitView) uint64 { return v.objects.PacksKept }),
		figure("millrace_gitobj_pack_bytes_total", "Bytes of those, with their indexes", func(v gitView) uint64 { return v.objects.PackBytes }),
		figure("millrace_gitobj_taken_packs_total", "Packs of pushes to other nodes of which a copy was made durable here", func(v gitView) uint64 { return v.objects.PacksTaken }),
		figure("millrace_gitobj_stages_failed_total", "Pushes refused because too few nodes took their packs in time", func(v gitView) uint64 { return v.objects.StagesFailed }),
		figure("millrace_gitobj_pulled_packs_total", "Packs that were missing here, or damaged, and came from other nodes", func(v gitView) uint64 { return v.objects.PacksPulled }),
		figure("millrace_gitobj_pulled_bytes_total", "Bytes of those, with their indexes", func(v gitView) uint64 { return v.objects.PulledBytes }),
		figure("millrace_gitobj_given_packs_total", "Packs given to other nodes that lacked them", func(v gitView) uint64 { return v.objects.PacksGiven }),
		figure("millrace_gitobj_swept_files_total", "Files of packs that were removed because no commit names them", func(v gitView) uint64 { return v.objects.PacksSwept }),
		figure("millrace_gitobj_rollups_total", "Times that packs of pushes were written together into one", func(v gitView) uint64 { return v.objects.Rollups }),
		figure("millrace_gitobj_rolled_packs_total", "Packs that went into those", func(v gitView) uint64 { return v.objects.PacksRolled }),
		figure("millrace_gitobj_worn_packs_total", "Packs whose files were removed since another holds the same objects", func(v gitView) uint64 { return v.objects.PacksWorn }),
		figure("millrace_gitobj_damaged_packs_total", "Times that a pack was found missing or damaged: fetches of its repository are refused", func(v gitView) uint64 { return v.objects.Damaged }),
		figure("millrace_gitobj_gitdirs_total", "Directories with the refs of one revision that were made for git", func(v gitView) uint64 { return v.objects.Gitdirs }),
		figure("millrace_gitobj_gitdir_hits_total", "Uses of one that was there", func(v gitView) uint64 { return v.objects.GitdirHits }),
		state("millrace_gitobj_broken_state", "1 once a sync of a pack failed: no more are taken until a restart", func(v gitView) bool { return v.objects.Broken }),
	}
}
