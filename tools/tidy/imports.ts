import { posix } from 'node:path';
import { roomOf, testsMayImport } from './rooms.ts';
import type { Placed } from './rooms.ts';
import type { Import, Source } from './source.ts';
import { isTest } from './tree.ts';
import type { Problem, Tree } from './tree.ts';

/** Every file stands in a room of the table and imports only what its room may; and what it imports is declared. */
export function checkImports(tree: Tree, sources: ReadonlyMap<string, Source>): Problem[] {
  const manifests = readManifests(tree);
  return [...sources].flatMap(([path, source]) => {
    const placed = roomOf(path);
    if (!placed) return [{ path, message: 'stands in no room that tools/tidy/rooms.ts knows: give it a line there' }];
    return source.imports.flatMap((found): Problem[] => {
      const message = refusal(path, placed, found) ?? undeclared(path, found, manifests);
      return message ? [{ path, line: found.line, message }] : [];
    });
  });
}

function refusal(path: string, placed: Placed, { specifier }: Import): string | undefined {
  if (specifier === undefined) return 'import() of a computed path: nobody can check where it leads';
  const allowed = isTest(path) ? [...placed.mayImport, ...testsMayImport] : placed.mayImport;
  if (!specifier.startsWith('.')) {
    if (allowed.some((entry) => admitsPackage(entry, specifier))) return undefined;
    return `${placed.room} may not import ${specifier}`;
  }
  const targetPath = posix.join(posix.dirname(path), specifier);
  const target = roomOf(targetPath);
  if (!target) return `imports ${specifier}, which stands in no room`;
  if (!isTest(path) && isTest(targetPath)) return `imports ${specifier}: a test is not there to be imported`;
  if (admitsRoom(allowed, placed, target, isTest(path))) return undefined;
  return `${placed.room} may not import ${specifier} of ${target.room}`;
}

function admitsRoom(allowed: readonly string[], from: Placed, target: Placed, forTest: boolean): boolean {
  if (target.room === from.room || allowed.includes(target.room)) return true;
  if (target.shipped && allowed.includes('every room of the package')) return true;
  // A test in `transports` may use `transports/kafka`. `lab/load` and `lab/chaos` are strangers all the same.
  const isSideRoom = target.room.startsWith(`${from.room}/`) || from.room.startsWith(`${target.room}/`);
  return forTest && isSideRoom;
}

function admitsPackage(entry: string, specifier: string): boolean {
  if (entry === 'node:*') return specifier.startsWith('node:') && !/^node:test\b/.test(specifier);
  if (entry.endsWith('/*')) return specifier.startsWith(entry.slice(0, -1));
  return specifier === entry || specifier.startsWith(`${entry}/`);
}

interface Manifest {
  directory: string;
  name: string;
  /** What is there for whoever installs the package. */
  shipped: string[];
  development: string[];
}

type Dependencies = Record<string, string> | undefined;

function readManifests(tree: Tree): Manifest[] {
  const manifests = [...tree].filter(([path]) => posix.basename(path) === 'package.json');
  return manifests.map(([path, text]) => {
    const json = JSON.parse(text) as Record<string, Dependencies> & { name?: string };
    const keys = (...sections: string[]) => sections.flatMap((section) => Object.keys(json[section] ?? {}));
    return {
      directory: path.slice(0, -'package.json'.length),
      name: json.name ?? '',
      shipped: keys('dependencies', 'peerDependencies', 'optionalDependencies'),
      development: keys('devDependencies'),
    };
  });
}

function undeclared(path: string, { specifier = '', typeOnly }: Import, manifests: Manifest[]): string | undefined {
  if (specifier.startsWith('.') || specifier.startsWith('node:')) return undefined;
  const name = packageName(specifier);
  const root = manifests.find(({ directory }) => directory === '');
  const nearest = manifests.filter(({ directory }) => path.startsWith(directory));
  const own = nearest.toSorted((a, b) => b.directory.length - a.directory.length)[0];
  // Tests and what stands outside the workspaces never leave this repository, whose root links every workspace.
  const staysHere = own === root || isTest(path);
  const declared = [...(own?.shipped ?? [])];
  if (staysHere)
    declared.push(...(own?.development ?? []), ...(root?.development ?? []), ...manifests.map((m) => m.name));
  const satisfies = (dependency: string) =>
    name.endsWith('*') ? dependency.startsWith(name.slice(0, -1)) : dependency === name;
  if (declared.some(satisfies)) return undefined;
  if (typeOnly && [...declared, ...(own?.development ?? [])].includes(typesPackage(name))) return undefined;
  return `imports ${name}, which ${own?.directory ?? ''}package.json does not declare`;
}

function packageName(specifier: string): string {
  return specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
}

function typesPackage(name: string): string {
  return `@types/${name.replace(/^@/, '').replace('/', '__')}`;
}
