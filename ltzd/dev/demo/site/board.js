// The leaderboard, which is public.

import { ask } from "./api.js";
import { amount, copyOf, days, element, ltz, orTell } from "./page.js";

const UNITS = {
  ltz_earned: { title: "LTZ earned", shown: ltz },
  activity: { title: "Rewards", shown: amount },
  streak: { title: "Days in a row", shown: days },
};

let newest = 0;

export const load = () => orTell(loadChosen);

async function loadChosen() {
  const mine = ++newest;
  const chosen = new FormData(element("board-choice"));
  const board = await ask(`leaderboard?${new URLSearchParams(chosen)}`);
  if (mine === newest) show(board); // Else something else was chosen meanwhile.
}

function show({ leaderboard, metric, total }) {
  const unit = UNITS[metric];
  const isEmpty = leaderboard.length === 0;
  element("board-unit").textContent = unit.title;
  element("board-total").textContent = isEmpty ? "" : `${amount(total)} ranked`;
  element("board").hidden = isEmpty;
  element("board-empty").hidden = !isEmpty;
  element("board").tBodies[0].replaceChildren(...leaderboard.map((entry) => row(entry, unit)));
}

function row(entry, unit) {
  const line = copyOf("board-row");
  const isMine = entry.username === document.body.dataset.username;
  line.querySelector(".rank").textContent = entry.rank;
  line.querySelector(".name").textContent = entry.username;
  line.querySelector(".value").textContent = unit.shown(entry.value);
  line.querySelector(".you").hidden = !isMine;
  line.classList.toggle("mine", isMine);
  return line;
}

element("board-choice").addEventListener("change", load);
load();
