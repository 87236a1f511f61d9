package rules

import "math"

// earthKilometres is the mean radius of the Earth (IUGG).
const earthKilometres = 6371.0088

// ValidPlace says whether p is a latitude of −90 to 90 and a longitude of −180 to 180 degrees.
func ValidPlace(p [2]float64) bool {
	return math.Abs(p[0]) <= 90 && math.Abs(p[1]) <= 180
}

// Kilometres returns the great-circle distance of two places given in degrees, by the haversine formula.
func Kilometres(a, b [2]float64) float64 {
	const rad = math.Pi / 180
	dLat, dLon := (b[0]-a[0])*rad/2, (b[1]-a[1])*rad/2
	s, t := math.Sin(dLat), math.Sin(dLon)
	h := s*s + math.Cos(a[0]*rad)*math.Cos(b[0]*rad)*t*t
	return 2 * earthKilometres * math.Asin(math.Sqrt(min(1, h)))
}

// beyond says whether two valid places are further apart than a limit by their latitudes alone, which needs no trigonometry. No
// distance is shorter than the one between the circles of latitude; a millionth off covers what the formula rounds.
func beyond(a, b [2]float64, limit float64) bool {
	const perDegree = earthKilometres * math.Pi / 180
	return math.Abs(a[0]-b[0])*perDegree*(1-1e-6) > limit
}
