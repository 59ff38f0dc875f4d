package slurm

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// waits says what common reasons of pending jobs mean; others are shown as Slurm names them. Those with a remedy do not
// pass by themselves.
var waits = map[string]string{
	"Resources":               "the machines that it needs are in use",
	"Priority":                "jobs with a higher priority are before it",
	"Dependency":              "it depends on a job that has not ended",
	"BeginTime":               "it may not start yet",
	"CONFIGURING":             "its machines are being made ready",
	"Licenses":                "a license that it needs is in use",
	"Reservation":             "its reservation has not begun",
	"ReqNodeNotAvail":         "a machine that it asks for is down, drained or reserved",
	"JobHeldUser":             "it is held: `scontrol release JOB` lets it start",
	"JobHeldAdmin":            "an administrator holds it",
	"PartitionDown":           "its partition is down",
	"PartitionInactive":       "its partition is inactive",
	"PartitionTimeLimit":      "its time limit is above that of its partition: lower it, or name another partition",
	"PartitionNodeLimit":      "it asks for more machines than its partition gives to one job",
	"BadConstraints":          "no machine has what its constraints ask for",
	"InvalidAccount":          "its account is not valid: correct `account` of the executor",
	"InvalidQOS":              "its quality of service is not valid: correct `qos` of the executor",
	"AssocGrpGRES":            "its account uses all the GPUs that it may use at a time",
	"QOSMaxGRESPerUser":       "you use all the GPUs that you may use at a time",
	"QOSMaxJobsPerUserLimit":  "you run all the jobs that you may run at a time",
	"QOSMaxCpuPerUserLimit":   "you use all the CPUs that you may use at a time",
	"AssocMaxJobsLimit":       "your account runs all the jobs that it may run at a time",
	"MaxGRESPerAccount":       "your account uses all the GPUs that it may use at a time",
	"AssocGrpCPUMinutesLimit": "the CPU time of your account is used up",
	"AssocGrpBillingMinutes":  "the budget of your account is used up",
}

// inWords adds to a reason of Slurm what it means.
func inWords(reason string) string {
	name, _, _ := strings.Cut(reason, ",") // "ReqNodeNotAvail, UnavailableNodes:n1"
	if text := waits[name]; text != "" {
		return reason + " (" + text + ")"
	}
	return reason
}

// placeEvery is how often the whole queue is read, of which a cluster may have thousands of lines.
const placeEvery = 30 * time.Second

// line is the order of pending jobs when it was last read.
type line struct {
	read   time.Time
	places map[string]int // by job id
}

// place is the place of a pending job among those of its partition, from 1; 0 when it is unknown.
func (s *slurm) place(ctx context.Context, id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line.places[id] == 0 || time.Since(s.line.read) > placeEvery {
		if time.Since(s.line.read) < placeEvery/10 { // just read, without this job
			return 0
		}
		out, err := run(ctx, "", "squeue", "--noheader", "--states=PENDING", "--format=%i|%Q|%P")
		if err != nil {
			return 0
		}
		s.line = line{read: time.Now(), places: places(out)}
	}
	return s.line.places[id]
}

// places numbers the pending jobs of each partition: higher priorities first, then older jobs.
func places(queue string) map[string]int {
	type job struct {
		id        string
		priority  int64
		number    int
		partition string
	}
	var jobs []job
	for text := range strings.Lines(queue) {
		fields := strings.Split(strings.TrimSpace(text), "|")
		if len(fields) != 3 {
			continue
		}
		priority, _ := strconv.ParseInt(fields[1], 10, 64)
		digits := strings.FieldsFunc(fields[0], func(r rune) bool { return r < '0' || r > '9' }) // 12_3 of an array
		number := 0
		if len(digits) > 0 {
			number, _ = strconv.Atoi(digits[0])
		}
		jobs = append(jobs, job{fields[0], priority, number, fields[2]})
	}
	slices.SortStableFunc(jobs, func(a, b job) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.number, b.number))
	})
	out, next := map[string]int{}, map[string]int{}
	for _, j := range jobs {
		next[j.partition]++
		out[j.id] = next[j.partition]
	}
	return out
}
