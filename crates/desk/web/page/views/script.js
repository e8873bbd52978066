// Saves and deletes configurations. Everything else on the page works without a script.
'use strict';

const answer = document.getElementById('answer');

// Sends a request that changes the settings, and shows the page again when that is done.
async function change(path, parameters) {
  const address = new URL(path, document.URL);
  address.search = new URLSearchParams(parameters);
  answer.textContent = '';
  const headers = { 'Content-Type': 'application/json' };
  const reply = await fetch(address, { method: 'POST', headers }).catch(() => null);
  if (reply?.ok) return location.reload();
  const said = reply && await reply.json().catch(() => null);
  answer.textContent = said?.error.what || 'The server does not answer.';
}

document.getElementById('save').addEventListener('click', () => {
  const parameters = [...new URL(document.URL).searchParams].filter(([key]) => key !== 'config');
  change('./saveconfig', [...parameters, ['config', document.getElementById('config').value]]);
});

for (const button of document.querySelectorAll('[data-config]')) {
  const token = new URL(document.URL).searchParams.get('token');
  button.addEventListener('click', () => {
    change('./deleteconfig', [['token', token], ['config', button.dataset.config]]);
  });
}
