// An agent of the Vercel AI SDK in one process, for the tests in Python.
//
// In: a JSON object in the only argument: provider, url, and where wanted options (the provider's), question and
// messages (a history to go on from). Out: one line of JSON on stdout: the queries with which the tool was executed,
// the parts' types and the text of the stream as it came, the final text and finish reason, any errors, and the
// messages to go on from.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const asked = JSON.parse(process.argv[2]);
// The packages are in the folder that the process was started in, not beside this file.
const require = createRequire(join(process.cwd(), "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { jsonSchema, stepCountIs, streamText, tool } = await load("ai");

const providers = {
  "openai-chat": async () => {
    const { createOpenAI } = await load("@ai-sdk/openai");
    return createOpenAI({ baseURL: `${asked.url}/v1`, apiKey: "none" }).chat("scripted-model");
  },
  "openai-responses": async () => {
    const { createOpenAI } = await load("@ai-sdk/openai");
    return createOpenAI({ baseURL: `${asked.url}/v1`, apiKey: "none" }).responses("scripted-model");
  },
  anthropic: async () => {
    const { createAnthropic } = await load("@ai-sdk/anthropic");
    return createAnthropic({ baseURL: `${asked.url}/v1`, apiKey: "none" })("scripted-model");
  },
  google: async () => {
    const { createGoogleGenerativeAI } = await load("@ai-sdk/google");
    return createGoogleGenerativeAI({ baseURL: `${asked.url}/v1beta`, apiKey: "none" })("scripted-model");
  },
};

const used = [];
const errors = [];
const messages = [...(asked.messages ?? []), { role: "user", content: asked.question ?? "What is going on?" }];

const result = streamText({
  model: await providers[asked.provider](),
  messages,
  tools: {
    search_web: tool({
      description: "Search the web.",
      inputSchema: jsonSchema({ type: "object", properties: { query: { type: "string" } }, required: ["query"] }),
      execute: async ({ query }) => {
        used.push(query);
        return "Nothing new.";
      },
    }),
  },
  stopWhen: stepCountIs(8),
  maxRetries: 0,
  maxOutputTokens: 4096, // without, the Anthropic provider warns that it does not know the model
  providerOptions: asked.options ?? {},
  onError: ({ error }) => errors.push(String(error)),
});

const parts = [];
let shown = "";
for await (const part of result.fullStream) {
  parts.push(part.type);
  if (part.type === "text-delta") shown += part.text;
}
const response = await result.response;
console.log(
  JSON.stringify({
    used,
    parts,
    shown,
    text: await result.text,
    finish: await result.finishReason,
    steps: (await result.steps).length,
    errors,
    messages: [...messages, ...response.messages],
  }),
);
