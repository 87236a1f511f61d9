// Package cron reads the schedules of crons and computes when they are due: their slots.
//
// A schedule has five or six fields as in crontab(5), or is one of the words that begin with @. A slot is an instant. Which instants
// a schedule has over a change of the clocks depends on its kind:
//
//   - One that names hours of the day goes by what the clock on the wall shows. A slot within the hour that is skipped in spring comes
//     right after it; of an hour that is repeated in autumn the first one counts.
//   - One that holds in every hour, and one of @every, goes by time that passes: nothing is moved, and a repeated hour has its slots
//     twice.
//
// Nothing here is part of Apply: zone data differ between nodes. The leader computes slots, and Apply compares instants.
package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Bounds of the period of @every.
const (
	MinPeriod = time.Second
	MaxPeriod = 10 * 366 * 24 * time.Hour
)

// horizon is for how many days the next slot is looked for. The 29th of February may be eight years away.
const horizon = 10 * 366

// Error says which field of a schedule is at fault, and why.
type Error struct {
	Field string // schedule or zone
	// Limit is the name of the bound that it is beyond, which is Max; empty: it is beyond none.
	Limit   string
	Max     int64
	Message string
}

// Error names the field.
func (e *Error) Error() string { return e.Field + ": " + e.Message }

// bad refuses a schedule.
func bad(format string, args ...any) *Error {
	return &Error{Field: "schedule", Message: fmt.Sprintf(format, args...)}
}

// Schedule is a schedule in a zone. It does not change.
type Schedule struct {
	zone *time.Location
	// every is the period of @every; 0: the fields below hold.
	every time.Duration
	// Each has a bit for each value that the schedule holds for.
	seconds, minutes, hours, days, months, weekdays uint64
}

// field is the range of one field, and the names of its values.
type field struct {
	name     string
	from, to int
	names    string // three letters each, from from on
}

// The fields, in order. Day 7 of the week is Sunday too.
var fields = [...]field{
	{name: "second", to: 59},
	{name: "minute", to: 59},
	{name: "hour", to: 23},
	{name: "day of month", from: 1, to: 31},
	{name: "month", from: 1, to: 12, names: "janfebmaraprmayjunjulaugsepoctnovdec"},
	{name: "day of week", to: 7, names: "sunmontuewedthufrisat"},
}

// The masks of fields that hold for every value.
const (
	allSixty    = 1<<60 - 1
	allHours    = 1<<24 - 1
	allDays     = 1<<32 - 2
	allMonths   = 1<<13 - 2
	allWeekdays = 1<<7 - 1
)

// words are the schedules that are named.
var words = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// Parse reads a schedule and the name of its zone; an empty name is UTC. A schedule that has no slot is refused. The error is an
// *Error.
func Parse(schedule, zone string) (*Schedule, error) {
	s := &Schedule{}
	var err error
	if s.zone, err = loadZone(zone); err != nil {
		return nil, err
	}
	text := strings.TrimSpace(schedule)
	switch {
	case len(schedule) > core.MaxSchedule:
		return nil, &Error{Field: "schedule", Limit: "schedule_bytes", Max: core.MaxSchedule, Message: "is too long"}
	case text == "":
		return nil, bad("is required")
	case strings.HasPrefix(text, "@every "):
		if s.every, err = parseEvery(strings.TrimSpace(text[len("@every "):])); err != nil {
			return nil, err
		}
		return s, nil
	case text[0] == '@':
		named, ok := words[strings.ToLower(text)]
		if !ok {
			return nil, bad("must be five or six fields, @every with a duration, or one of @yearly, @monthly, @weekly, @daily and @hourly")
		}
		text = named
	}
	if err := s.parse(strings.Fields(text)); err != nil {
		return nil, err
	}
	if _, ok := s.nextLocal(0); !ok { // 1970; dates repeat within the horizon from any year on
		return nil, bad("must hold for a day that comes: it never fires")
	}
	return s, nil
}

// loadZone loads a zone by its name in the IANA database.
func loadZone(name string) (*time.Location, error) {
	if len(name) > core.MaxZone {
		return nil, &Error{Field: "zone", Limit: "zone_bytes", Max: core.MaxZone, Message: "is too long"}
	}
	if !strings.EqualFold(name, "local") { // that is the zone of the machine
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, &Error{Field: "zone", Message: "must be a zone of the IANA database, such as Europe/Berlin"}
}

// parseEvery reads the period of @every.
func parseEvery(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, bad("@every must have a duration, such as 90s or 1h30m")
	case d < MinPeriod:
		return 0, &Error{Field: "schedule", Limit: "cron_period", Max: MinPeriod.Milliseconds(), Message: "@every must have at least one second"}
	case d > MaxPeriod:
		return 0, &Error{Field: "schedule", Limit: "cron_period_most", Max: MaxPeriod.Milliseconds(), Message: "@every must have at most ten years"}
	}
	return d.Truncate(time.Millisecond), nil
}

// parse reads the fields.
func (s *Schedule) parse(texts []string) error {
	if len(texts) == 5 {
		texts = append([]string{"0"}, texts...)
	}
	if len(texts) != len(fields) {
		return bad("must have five fields, or six with seconds; it has %d", len(texts))
	}
	for i, to := range [...]*uint64{&s.seconds, &s.minutes, &s.hours, &s.days, &s.months, &s.weekdays} {
		mask, err := fields[i].parse(texts[i])
		if err != nil {
			return err
		}
		*to = mask
	}
	s.weekdays = (s.weekdays | s.weekdays>>7) & allWeekdays
	return nil
}

// parse reads a list of ranges.
func (f *field) parse(text string) (mask uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		one, err := f.parseRange(part)
		if err != nil {
			return 0, err
		}
		mask |= one
	}
	return mask, nil
}

// parseRange reads a value, a range or a star, with a step or without.
func (f *field) parseRange(text string) (mask uint64, err error) {
	span, stepText, stepped := strings.Cut(text, "/")
	from, to, step := f.from, f.to, 1
	if stepped {
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 || step > f.to {
			return 0, bad("the step %q of the %s must be a number from 1 to %d", stepText, f.name, f.to)
		}
	}
	if span != "*" && span != "?" {
		low, high, ranged := strings.Cut(span, "-")
		if from, err = f.value(low); err != nil {
			return 0, err
		}
		switch {
		case ranged:
			if to, err = f.value(high); err != nil {
				return 0, err
			}
		case !stepped:
			to = from
		}
		if from > to {
			return 0, bad("the range %q of the %s must begin before its end", span, f.name)
		}
	}
	for v := from; v <= to; v += step {
		mask |= 1 << v
	}
	return mask, nil
}

// value reads a number or a name.
func (f *field) value(text string) (int, error) {
	if len(text) == 3 && f.names != "" {
		if at := strings.Index(f.names, strings.ToLower(text)); at >= 0 && at%3 == 0 {
			return f.from + at/3, nil
		}
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < f.from || v > f.to || text[0] == '+' {
		return 0, bad("the %s %q must be a number from %d to %d", f.name, text, f.from, f.to)
	}
	return v, nil
}

// elapses reports whether the schedule goes by time that passes: it holds in every hour.
func (s *Schedule) elapses() bool { return s.every > 0 || s.hours == allHours }

// Next returns the first slot after a time. Those of @every are whole periods
// after base, and base itself. ok is false when there is none.
func (s *Schedule) Next(after, base time.Time) (slot time.Time, ok bool) {
	if s.every > 0 {
		from := base.Truncate(time.Second)
		n := after.Sub(from)/s.every + 1
		if after.Before(from) {
			n = 0
		}
		return from.Add(n * s.every).UTC(), true
	}
	sec := floorSecond(after)
	if s.elapses() {
		sec, ok = s.nextElapsed(sec)
	} else {
		sec, ok = s.nextOfDay(sec)
	}
	return time.Unix(sec, 0).UTC(), ok
}

// NextOf returns the first slot of a cron after a time; core.Never: there is none. Slots are after the anchor, not before the start of
// the cron, and not after its end. Periods count from the start or, where there is none, from the anchor.
func (s *Schedule) NextOf(c *core.CronConfig, anchor, after core.ShardTime) core.ShardTime {
	base := anchor
	if c.Start != 0 {
		base, after = c.Start, max(after, c.Start-1)
	}
	slot, ok := s.Next(after.Time(), base.Time())
	if at := core.ShardTimeOf(slot); ok && (c.End == 0 || at <= c.End) {
		return at
	}
	return core.Never
}

// Local is a time as the clocks of the schedule's zone show it.
func (s *Schedule) Local(t time.Time) string { return t.In(s.zone).Format(time.RFC3339) }

// floorSecond is the whole second at or before t.
func floorSecond(t time.Time) int64 { return t.Unix() }

// nextElapsed returns the first instant after sec at which the clock shows a time that the schedule holds for.
func (s *Schedule) nextElapsed(sec int64) (int64, bool) {
	for x := sec + 1; ; {
		_, to, offset := s.stretch(x)
		local, ok := s.nextLocal(x + offset)
		if !ok {
			return 0, false
		}
		if local-offset < to {
			return local - offset, true
		}
		x = to
	}
}

// nextOfDay returns the first instant after sec that stands for a local time that the schedule holds for.
func (s *Schedule) nextOfDay(sec int64) (int64, bool) {
	_, _, offset := s.stretch(sec)
	for local := sec + offset; ; {
		var ok bool
		if local, ok = s.nextLocal(local + 1); !ok {
			return 0, false
		}
		if at := s.instant(local); at > sec { // else it is of the first of two hours of one name, which is over
			return at, true
		}
	}
}

// never is after every instant of a schedule.
const never = int64(1) << 60

// stretch returns the stretch of time around an instant in which the zone has one offset from UTC, in seconds.
func (s *Schedule) stretch(sec int64) (from, to, offset int64) {
	t := time.Unix(sec, 0).In(s.zone)
	_, off := t.Zone()
	start, end := t.ZoneBounds()
	from, to = -never, never
	if !start.IsZero() {
		from = start.Unix()
	}
	if !end.IsZero() {
		to = end.Unix()
	}
	// Where a zone goes on by a rule, package time ends a stretch after 365 days of a year at the latest: on the last day of a leap year that
	// is over already. The stretch then goes on to the end of the year.
	if to <= sec {
		to = time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return from, to, int64(off)
}

// instant returns when the clock shows a local time first; where it skips that, the instant at which it does.
func (s *Schedule) instant(local int64) int64 {
	for x := local - 26*3600; ; { // no offset is longer
		from, to, offset := s.stretch(x)
		switch at := local - offset; {
		case at < from:
			return from
		case at < to:
			return at
		}
		x = to
	}
}

// nextLocal returns the first local time at or after one that the schedule holds for. Local times are counted in seconds as if the zone
// were UTC.
func (s *Schedule) nextLocal(local int64) (int64, bool) {
	at := time.Unix(local, 0).UTC()
	second := at.Hour()*3600 + at.Minute()*60 + at.Second()
	day := at.Truncate(24 * time.Hour)
	for range horizon {
		if s.months>>int(day.Month())&1 == 0 {
			second = 0
			day = time.Date(day.Year(), day.Month()+1, 1, 0, 0, 0, 0, time.UTC)
			continue
		}
		if s.onDay(day) {
			if next, ok := s.inDay(second); ok {
				return day.Unix() + int64(next), true
			}
		}
		second, day = 0, day.AddDate(0, 0, 1)
	}
	return 0, false
}

// onDay reports whether the schedule holds for a day. Where both fields of days say something, one of them is enough.
func (s *Schedule) onDay(day time.Time) bool {
	inMonth, inWeek := s.days>>day.Day()&1 == 1, s.weekdays>>int(day.Weekday())&1 == 1
	if s.days != allDays && s.weekdays != allWeekdays {
		return inMonth || inWeek
	}
	return inMonth && inWeek
}

// inDay returns the first second of a day at or after one that the schedule holds for.
func (s *Schedule) inDay(from int) (second int, ok bool) {
	h0, m0, s0 := from/3600, from/60%60, from%60
	h := next(s.hours, h0)
	if h == h0 {
		m := next(s.minutes, m0)
		if m == m0 {
			if sec := next(s.seconds, s0); sec >= 0 {
				return h*3600 + m*60 + sec, true
			}
			m = next(s.minutes, m0+1)
		}
		if m >= 0 {
			return h*3600 + m*60 + next(s.seconds, 0), true
		}
		h = next(s.hours, h0+1)
	}
	if h < 0 {
		return 0, false
	}
	return h*3600 + next(s.minutes, 0)*60 + next(s.seconds, 0), true
}

// next returns the first bit of a mask from one on; -1: there is none.
func next(mask uint64, from int) int {
	if rest := mask >> from; rest != 0 {
		return from + bits.TrailingZeros64(rest)
	}
	return -1
}

// Shortest returns the shortest time between two of the next n slots after a time.
func (s *Schedule) Shortest(after time.Time, n int) time.Duration {
	if s.every > 0 {
		return s.every
	}
	shortest := MaxPeriod
	was, ok := s.Next(after, after)
	for range n {
		if !ok {
			break
		}
		var slot time.Time
		if slot, ok = s.Next(was, was); ok {
			shortest, was = min(shortest, slot.Sub(was)), slot
		}
		if shortest <= MinPeriod {
			break
		}
	}
	return shortest
}
