/**
 * FOR THE DEMO ONLY: the bearer token is taken for the tenant's name, so whoever knows a name is that tenant. A real
 * service verifies a token here, and answers the tenant that the token was issued to.
 */
export function demoTenantFrom(authorization: unknown): string | undefined {
  if (typeof authorization !== 'string') return undefined;
  return /^Bearer ([A-Za-z0-9._:-]{1,128})$/i.exec(authorization)?.[1];
}
