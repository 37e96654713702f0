'use strict';
for (const table of document.querySelectorAll('table')) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const valueOf = (row, at) => {
    const cell = row.cells[at];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  heads.forEach((head, at) => {
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute('aria-sort') !== 'descending';
      for (const other of heads) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const rows = [...body.rows].sort((one, two) => {
        const [a, b] = [valueOf(one, at), valueOf(two, at)];
        if (a === '' || b === '') return Number(a === '') - Number(b === '');
        const order = typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b));
        return down ? -order : order;
      });
      body.append(...rows);
    };
    head.addEventListener('click', sort);
    head.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' || event.key === ' ') {
        event.preventDefault();
        sort();
      }
    });
  });
  if (body.rows.length < 12) continue;
  const field = document.createElement('input');
  field.type = 'search';
  field.placeholder = 'Filter';
  field.setAttribute('aria-label', `Filter ${table.getAttribute('aria-label')}`);
  field.addEventListener('input', () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  table.closest('.block').querySelector('.bar').append(field);
}
