package core

import "testing"

func TestACommitIsOfTheAttemptThatItEndsOrStandsUnder(t *testing.T) {
	a, b := TaskHold{Task: TaskID{1}, Token: 7}, TaskHold{Task: TaskID{2}, Token: 8}
	put := &KVPut{Keyspace: "ks", Key: []byte("k")}
	for name, c := range map[string]struct {
		commit *Commit
		want   TaskHold
	}{
		"timed work":               {nil, TaskHold{}},
		"from outside":             {&Commit{Ops: []Op{put, &TaskCancel{Task: a.Task}, &TaskRenew{Items: []TaskHold{a}}}}, TaskHold{}},
		"a fence":                  {&Commit{Fence: (*Fence)(&a), Ops: []Op{put}}, a},
		"a completion":             {&Commit{Ops: []Op{&TaskComplete{Task: a.Task, Token: a.Token}, put}}, a},
		"a failure behind":         {&Commit{Ops: []Op{put, &TaskFail{Task: a.Task, Token: a.Token}}}, a},
		"a snooze":                 {&Commit{Ops: []Op{&TaskSnooze{Task: a.Task, Token: a.Token}}}, a},
		"a release":                {&Commit{Ops: []Op{&TaskRelease{Task: a.Task, Token: a.Token}}}, a},
		"a stop":                   {&Commit{Ops: []Op{&TaskStop{Task: a.Task, Token: a.Token}}}, a},
		"several completions":      {&Commit{Ops: []Op{&TaskComplete{Task: b.Task, Token: b.Token}, &TaskComplete{Task: a.Task, Token: a.Token}}}, b},
		"a completion and a fence": {&Commit{Fence: (*Fence)(&b), Ops: []Op{put, &TaskComplete{Task: a.Task, Token: a.Token}}}, a},
	} {
		ctx := &ApplyContext{Commit: c.commit}
		for range 2 {
			if got := ctx.Holder(); got != c.want {
				t.Errorf("%s: held by %+v, want %+v", name, got, c.want)
			}
		}
	}
}
