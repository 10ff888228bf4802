/**
 * A named place between two instructions where a test can wait and the chaos harness can kill,
 * for example `relay:published`. Named `room:what-has-just-happened`.
 */
export type PointName = `${string}:${string}`;

/** In production a point does nothing and costs one call. */
export type Point = (name: PointName) => Promise<void>;
