// A loop on OpenAI's package for Node, which finds its task on the standard input.
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const BOXES = { a: "tea", b: "salt" };
const tools = [
  {
    type: "function",
    function: {
      name: "open_box",
      description: "Open a box and see what is in it.",
      parameters: { type: "object", properties: { box: { type: "string" } }, required: ["box"] },
    },
  },
];
const functions = {
  open_box({ box }) {
    if (!(box in BOXES)) throw new Error(`There is no box ${box}`);
    return BOXES[box];
  },
};

const task = JSON.parse(readFileSync(0, "utf8"));
const client = new OpenAI();
const messages = [{ role: "user", content: `Which box holds ${task.wanted}?` }];
let message;
do {
  const completion = await client.chat.completions.create({ model: "gpt-5", messages, tools });
  message = completion.choices[0].message;
  messages.push(message);
  for (const call of message.tool_calls ?? []) {
    const content = functions[call.function.name](JSON.parse(call.function.arguments));
    messages.push({ role: "tool", tool_call_id: call.id, content });
  }
} while (message.tool_calls?.length);
console.log(message.content);
