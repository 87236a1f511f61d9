package row

import (
	"strings"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

func TestTheJudgeOfSearchesFindsWhatIsMissingBackOrKeptOut(t *testing.T) {
	here := stafferState{&staffer{Role: "nurse", Serial: 2, Blocked: []string{"acme"}}, "0/7"}
	gone := stafferState{}
	later := stafferState{staffer: &staffer{Role: "nurse", Serial: 3}}
	any, byRole, byClient := millrace.Gate{}, millrace.Gate{Roles: []string{"driver"}}, millrace.Gate{Client: "acme"}
	for name, c := range map[string]struct {
		known stafferState
		tried *stafferState
		gate  millrace.Gate
		row   *stafferState
		want  string
	}{
		"as acknowledged":                    {here, nil, any, &here, ""},
		"missing":                            {here, nil, any, nil, "missing"},
		"kept out":                           {here, nil, byRole, nil, ""},
		"let through by role":                {here, nil, byRole, &here, "keeps it out"},
		"let through by client":              {here, nil, byClient, &here, "keeps it out"},
		"back from removal":                  {gone, nil, any, &here, "answered as write 2"},
		"in an older version":                {here, nil, any, &stafferState{here.staffer, "0/5"}, "version 0/5"},
		"what was cut off is there":          {here, &later, any, &stafferState{later.staffer, "0/9"}, ""},
		"what was cut off is not there":      {here, &later, any, &here, ""},
		"what was cut off took the old away": {here, &later, any, nil, "missing"},
		"a removal that was cut off":         {here, &gone, any, nil, ""},
	} {
		w := &searchOwner{points: []stafferState{c.known}, tried: c.tried}
		rows := map[string]stafferState{}
		if c.row != nil {
			rows[w.id(0)] = *c.row
		}
		err := w.judge(&c.gate, rows)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
