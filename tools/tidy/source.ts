import { parseSync, Visitor } from 'oxc-parser';
import type { Argument, Expression, Span } from 'oxc-parser';

/** What the guards want to know of one source file, read from its syntax tree: no string or comment can fool it. */
export interface Source {
  imports: Import[];
  comments: { line: number; text: string }[];
  functions: { line: number; lines: number; name: string }[];
  /** `test.only(...)`, `t.skip()`, `{ todo: true }` ... */
  unfinishedTests: { line: number; text: string }[];
}

export interface Import {
  line: number;
  /** As written. A template ends with `*` in the place of its first variable; a computed path is `undefined`. */
  specifier: string | undefined;
  typeOnly: boolean;
}

type Node = Span & { type: string };

export function parseSource(path: string, text: string): Source {
  const parsed = parseSync(path, text);
  const lineAt = lineFinder(text);
  const failure = parsed.errors[0];
  if (failure) throw new SyntaxError(`${path}:${lineAt(failure.labels[0]?.start ?? 0)}: ${failure.message}`);
  const source: Source = { imports: [], comments: [], functions: [], unfinishedTests: [] };
  for (const comment of parsed.comments) {
    source.comments.push({ line: lineAt(comment.start), text: comment.value });
  }
  visitor(source, lineAt).visit(parsed.program);
  return source;
}

function visitor(source: Source, lineAt: (offset: number) => number): Visitor {
  const containers = new Set<number>();
  const addImport = (node: Span, path: Node | null, typeOnly: boolean) => {
    if (path) source.imports.push({ line: lineAt(node.start), specifier: literalText(path), typeOnly });
  };
  const addFunction = (node: Span, name: string) => {
    if (containers.has(node.start)) return;
    const line = lineAt(node.start);
    source.functions.push({ line, lines: lineAt(node.end) - line + 1, name });
  };
  return new Visitor({
    ImportDeclaration: (node) => addImport(node, node.source, node.importKind === 'type'),
    ExportAllDeclaration: (node) => addImport(node, node.source, node.exportKind === 'type'),
    ExportNamedDeclaration: (node) => addImport(node, node.source, node.exportKind === 'type'),
    ImportExpression: (node) => addImport(node, node.source, false),
    TSImportType: (node) => addImport(node, node.source, true),
    TSExternalModuleReference: (node) => addImport(node, node.expression, false),
    FunctionDeclaration: (node) => addFunction(node, node.id?.name ?? 'a function'),
    FunctionExpression: (node) => addFunction(node, 'a function'),
    ArrowFunctionExpression: (node) => addFunction(node, 'an arrow function'),
    CallExpression(node) {
      const callee = calleeName(node.callee);
      // A suite is a chapter, not a function: its length says nothing.
      if (/^(describe|suite)\b/.test(callee)) for (const argument of node.arguments) containers.add(argument.start);
      const text = unfinished(callee, node.arguments);
      if (text) source.unfinishedTests.push({ line: lineAt(node.start), text });
    },
  });
}

/** `test.only` for `test.only(...)`; the empty string for what has no plain name. */
function calleeName(node: Expression): string {
  if (node.type === 'Identifier') return node.name;
  if (node.type !== 'MemberExpression' || node.property.type !== 'Identifier') return '';
  return `${calleeName(node.object)}.${node.property.name}`;
}

function unfinished(callee: string, args: readonly Argument[]): string | undefined {
  if (/\.(only|skip|todo)$/.test(callee)) return `${callee}(`;
  if (!/^(test|it|describe|suite|t\.test)$/.test(callee)) return undefined;
  for (const property of args.flatMap((argument) =>
    argument.type === 'ObjectExpression' ? argument.properties : [],
  )) {
    if (property.type !== 'Property' || property.key.type !== 'Identifier') continue;
    const isFalse = property.value.type === 'Literal' && property.value.value === false;
    if (/^(only|skip|todo)$/.test(property.key.name) && !isFalse) return `${callee}(… { ${property.key.name} })`;
  }
  return undefined;
}

function literalText(node: Node & { value?: unknown; quasis?: { value: { cooked: string | null } }[] }) {
  if (typeof node.value === 'string') return node.value;
  const [head, ...rest] = node.quasis ?? [];
  if (head === undefined || head.value.cooked === '') return undefined;
  return rest.length === 0 ? (head.value.cooked ?? undefined) : `${head.value.cooked}*`;
}

function lineFinder(text: string): (offset: number) => number {
  const starts = [0];
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) starts.push(at + 1);
  return (offset) => {
    const next = starts.findIndex((start) => start > offset);
    return next < 0 ? starts.length : next;
  };
}

/** The keys of `export const name = { ... }`. */
export function keysOfConstant(path: string, text: string, name: string): string[] {
  const keys: string[] = [];
  new Visitor({
    VariableDeclarator(node) {
      if (node.id.type !== 'Identifier' || node.id.name !== name) return;
      let value = node.init;
      while (value?.type === 'TSSatisfiesExpression' || value?.type === 'TSAsExpression') value = value.expression;
      if (value?.type !== 'ObjectExpression') return;
      for (const property of value.properties) {
        if (property.type === 'Property' && property.key.type === 'Identifier') keys.push(property.key.name);
      }
    },
  }).visit(parseSync(path, text).program);
  return keys;
}
