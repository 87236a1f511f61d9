package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// fingerprintBytes is how much of a message counts. Messages that differ later are one error.
const fingerprintBytes = 1 << 10

// fingerprintOf returns the fingerprint of an error. It is never 0.
func fingerprintOf(kind string, e *core.TaskError) core.Fingerprint {
	b := putString(make([]byte, 0, 128), kind)
	if e.Code != "" {
		b = append(append(b, 'c'), e.Code...)
	} else {
		b = appendWithoutDigits(append(b, 'm'), core.Cut(e.Message, fingerprintBytes))
	}
	return max(core.Fingerprint(hash(b)), 1)
}

// appendWithoutDigits appends a text in which each run of digits is one mark.
func appendWithoutDigits(b []byte, text string) []byte {
	digits := false
	for i := range len(text) {
		was := digits
		if digits = text[i] >= '0' && text[i] <= '9'; !digits {
			b = append(b, text[i])
		} else if !was {
			b = append(b, '#')
		}
	}
	return b
}

// errorOf is the error for which a delivery counts that ended with an outcome: the one that is kept with it, or a code for a crash.
// ok is false where the delivery counts for none.
func errorOf(outcome core.Outcome, e core.TaskError) (core.TaskError, bool) {
	switch outcome {
	case core.OutcomeFailed, core.OutcomeTimeout:
		return e, true
	case core.OutcomeCrashed:
		return core.TaskError{Code: core.ErrorCrashed, Message: "the lease ended without an answer of the worker"}, true
	}
	return core.TaskError{}, false
}

// expiredError is the error for which a task counts that was not given out in time.
func expiredError() *core.TaskError {
	return &core.TaskError{Code: core.ErrorExpired, Message: "the task was not given out in time"}
}

// fingerprintOfAttempt returns the fingerprint of how a delivery ended; 0: of no error.
func fingerprintOfAttempt(kind string, a *core.Attempt) core.Fingerprint {
	e, ok := errorOf(a.Outcome, a.Error)
	if !ok {
		return 0
	}
	return fingerprintOf(kind, &e)
}

// lastFingerprint returns the fingerprint of the last error of a task since it was redriven last; 0: it had none.
func lastFingerprint(v core.View, p core.Partition, id core.TaskID, rec *record, kind string) (fp core.Fingerprint, err error) {
	switch {
	case rec.state == core.Dead && rec.reason == reasonExpired:
		return fingerprintOf(kind, expiredError()), nil
	case rec.failures == 0 && rec.crashes == 0:
		return 0, nil
	case rec.failures == 0:
		return fingerprintOfAttempt(kind, &core.Attempt{Outcome: core.OutcomeCrashed}), nil
	}
	var bad error
	from, to := keys.TaskAttemptRange(p, id)
	err = v.ScanBack(from, to, func(_, value []byte) bool {
		var a core.Attempt
		if a, bad = decodeAttempt(value); bad != nil {
			return false
		}
		fp = fingerprintOfAttempt(kind, &a)
		return fp == 0
	})
	if err == nil {
		err = bad
	}
	return fp, err
}
