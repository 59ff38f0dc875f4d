//go:build race

package trajectories

// raceDetector: memory use is several times higher with it.
const raceDetector = true
