// What the programs of libraries on ioredis share: connections, and how checks are held. See run.py.
import { readFileSync } from 'node:fs';
import { Redis } from 'ioredis';

export const { HOST, PORT, LOGIN, PASSWORD, CA } = process.env;
export const options = {
  host: HOST,
  port: Number(PORT),
  username: LOGIN || undefined,
  password: PASSWORD || undefined,
  tls: CA ? { ca: readFileSync(CA) } : undefined,
  maxRetriesPerRequest: null,
};
export const connect = (more) => new Redis({ ...options, ...more });
export const range = (count) => [...Array(count).keys()];

export async function hold(checks) {
  for (const [name, check] of Object.entries(checks)) {
    await check();
    console.log('ok', name);
  }
  process.exit(0);
}
