// Points, lines and polygons in pixels of the page image. Plain functions: no DOM, no state.
// A point is [x, y]; a polyline or polygon is a list of points; polygons are not closed by repeating their first point.

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** The point, rounded to whole pixels and kept on the page. */
export function onPage([x, y], width, height) {
  return [clamp(Math.round(x), 0, width - 1), clamp(Math.round(y), 0, height - 1)];
}

/** [left, top, right, bottom] around points; null where there are none. */
export function bounds(points) {
  if (!points || points.length === 0) return null;
  let [left, top] = points[0];
  let [right, bottom] = points[0];
  for (const [x, y] of points) {
    left = Math.min(left, x);
    right = Math.max(right, x);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  return [left, top, right, bottom];
}

/** Whether a point lies within a polygon. */
export function isInside([x, y], polygon) {
  let inside = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
    const [[ax, ay], [bx, by]] = [polygon[i], polygon[j]];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}

export function moved(points, dx, dy) {
  return points.map(([x, y]) => [x + dx, y + dy]);
}

/** Moves points by one offset, cut back so that none leaves the page and the shape stays as it is. */
export function movedWithin(points, dx, dy, width, height) {
  const box = bounds(points);
  if (!box) return points;
  const x = clamp(dx, -box[0], width - 1 - box[2]);
  const y = clamp(dy, -box[1], height - 1 - box[3]);
  return moved(points, Math.trunc(x), Math.trunc(y));
}

/** Nearest place on the segment ab to p: {point, share, distance}. */
export function nearestOnSegment(p, a, b) {
  const dx = b[0] - a[0];
  const dy = b[1] - a[1];
  const length = dx * dx + dy * dy;
  const share = length === 0 ? 0 : clamp(((p[0] - a[0]) * dx + (p[1] - a[1]) * dy) / length, 0, 1);
  const point = [a[0] + share * dx, a[1] + share * dy];
  return { point, share, distance: Math.hypot(p[0] - point[0], p[1] - point[1]) };
}

/** The segment of a polyline (or polygon, if closed) that is nearest to p: {index, point, distance}; index of its first point. */
export function nearestSegment(p, points, closed = false) {
  let best = null;
  const count = closed ? points.length : points.length - 1;
  for (let index = 0; index < count; index++) {
    const near = nearestOnSegment(p, points[index], points[(index + 1) % points.length]);
    if (best === null || near.distance < best.distance) best = { index, point: near.point, distance: near.distance };
  }
  return best;
}

export function polylineLength(points) {
  let length = 0;
  for (let i = 1; i < points.length; i++) length += Math.hypot(points[i][0] - points[i - 1][0], points[i][1] - points[i - 1][1]);
  return length;
}

/** The point that lies at `share` (0 to 1) of a polyline's length. */
export function pointAt(points, share) {
  let left = polylineLength(points) * clamp(share, 0, 1);
  for (let i = 1; i < points.length; i++) {
    const [a, b] = [points[i - 1], points[i]];
    const step = Math.hypot(b[0] - a[0], b[1] - a[1]);
    if (left <= step && step > 0) return [a[0] + ((b[0] - a[0]) * left) / step, a[1] + ((b[1] - a[1]) * left) / step];
    left -= step;
  }
  return [...points[points.length - 1]];
}

/** Points as SVG wants them. */
export function pointText(points) {
  return points.map(([x, y]) => `${x},${y}`).join(" ");
}

/** Without points that lie (to `tolerance` pixels) on the way between the ones before and after. Ramer-Douglas-Peucker. */
export function simplified(points, tolerance) {
  if (points.length <= 2) return points;
  const last = points.length - 1;
  let farthest = 0;
  let distance = 0;
  for (let i = 1; i < last; i++) {
    const d = nearestOnSegment(points[i], points[0], points[last]).distance;
    if (d > distance) [farthest, distance] = [i, d];
  }
  if (distance <= tolerance) return [points[0], points[last]];
  return [...simplified(points.slice(0, farthest + 1), tolerance).slice(0, -1), ...simplified(points.slice(farthest), tolerance)];
}
